// How long work of a stream takes, by the GPU's own clock.
#pragma once

#include <algorithm>
#include <vector>

#include "common/device/cuda/check.h"
#include "common/device/cuda/handles.h"

namespace tp::bench {

class GpuTimer {
 public:
  // With `once`, every measurement is a single call.
  GpuTimer(cudaStream_t stream, bool once) : stream_(stream), once_(once) {
    for (cuda::Event* event : {&begin_, &end_}) {
      cudaEvent_t made = nullptr;
      cuda::check(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
      event->reset(made);
    }
  }

  // Microseconds of one call: the median of several series, each long against what launching and
  // measuring cost.
  template <class Launch>
  double median_us(const Launch& launch) const {
    if (once_) return series_us(launch, 1);
    constexpr double kSeriesUs = 10'000;
    constexpr int kMostCalls = 500, kSeries = 7;
    series_us(launch, 2);  // what happens at the first time only
    const double about_us = std::max(series_us(launch, 3), 1.0);
    const int calls = std::clamp(static_cast<int>(kSeriesUs / about_us), 3, kMostCalls);
    std::vector<double> times;
    for (int i = 0; i < kSeries; ++i) times.push_back(series_us(launch, calls));
    std::nth_element(times.begin(), times.begin() + kSeries / 2, times.end());
    return times[kSeries / 2];
  }

 private:
  template <class Launch>
  double series_us(const Launch& launch, int calls) const {
    cuda::check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
    for (int call = 0; call < calls; ++call) launch();
    cuda::check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
    cuda::check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return 1000.0 * static_cast<double>(ms) / calls;
  }

  cudaStream_t stream_;
  bool once_;
  cuda::Event begin_, end_;
};

}  // namespace tp::bench

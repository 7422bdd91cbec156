// Bugs between streams, and between a stream and the host.
#include <algorithm>

#include "bug.h"
#include "bug_kernels.h"

namespace emulated_test {
namespace {

bool missing_event(bool wrong) {
  const TestStream producer;
  const TestStream consumer;
  const DeviceArray<float> in(producer, Floats(64, 1.0f));
  const Zeros middle(producer, 64);
  const Zeros out(consumer, 64);
  cudaEvent_t written = nullptr;
  check(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
  producer.synchronize();
  copy_elements(middle.data(), in.data(), 64, false, producer);
  check(cudaEventRecord(written, producer));
  if (!wrong) {
    check(cudaStreamWaitEvent(consumer, written));
  }
  copy_elements(out.data(), middle.data(), 64, false, consumer);
  const bool right = out.values() == Floats(64, 1.0f);
  check(cudaEventDestroy(written));
  return right;
}

bool missing_stream_sync(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 64);
  float* pinned = nullptr;
  check(cudaMallocHost(&pinned, 256));
  check(cudaMemcpyAsync(pinned, data.data(), 256, cudaMemcpyDeviceToHost, stream));
  if (!wrong) {
    stream.synchronize();
  }
  const bool right = pinned[5] == 0.0f;
  stream.synchronize();
  check(cudaFreeHost(pinned));
  return right;
}

bool pinned_source_reused(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 64);
  float* pinned = nullptr;
  check(cudaMallocHost(&pinned, 256));
  std::fill(pinned, pinned + 64, 1.0f);
  check(cudaMemcpyAsync(data.data(), pinned, 256, cudaMemcpyHostToDevice, stream));
  if (!wrong) {
    stream.synchronize();
  }
  std::fill(pinned, pinned + 64, 2.0f);
  const bool right = data.values() == Floats(64, 1.0f);
  check(cudaFreeHost(pinned));
  return right;
}

}  // namespace

std::vector<Bug> stream_bugs() {
  return {
      {"missing_event", missing_event},
      {"missing_stream_sync", missing_stream_sync},
      {"pinned_source_reused", pinned_source_reused},
  };
}

}  // namespace emulated_test

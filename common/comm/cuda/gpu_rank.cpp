#include "common/comm/cuda/gpu_rank.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/device/cuda/check.h"

namespace tp::cuda {

using Clock = std::chrono::steady_clock;

GpuRank::GpuRank(CudaDevice& device, Group& group, std::chrono::milliseconds timeout)
    : device_(device), group_(group), timeout_(timeout), done_(make_event()) {
  device_.while_waiting([this] { check(); });
}

GpuRank::~GpuRank() {
  device_.while_waiting({});
}

bool GpuRank::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  tp::cuda::check(cudaStreamIsCapturing(stream(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void GpuRank::queued(const Call& call) {
  if (capturing()) return;  // nothing runs yet, and the event would become part of the graph
  tp::cuda::check(cudaEventRecord(done_.get(), stream()), "cudaEventRecord");
  last_ = call;
  looked_ = Clock::now();
  waited_ = Clock::duration::zero();
}

void GpuRank::watch(std::function<void()> trouble, std::function<void()> give_up) {
  trouble_ = std::move(trouble);
  give_up_ = std::move(give_up);
}

void GpuRank::check() {
  try {
    if (group_.aborted()) throw Aborted();
    if (trouble_) trouble_();
    check_progress();
  } catch (...) {
    if (give_up_) give_up_();
    throw;
  }
}

void GpuRank::check_progress() {
  const cudaError_t status = cudaEventQuery(done_.get());
  const Clock::time_point now = Clock::now();
  if (status == cudaErrorNotReady) {
    // The host looks often while it waits. A long gap is not waiting: it did something else, or the
    // process was stopped.
    waited_ += std::min<Clock::duration>(now - looked_, std::chrono::milliseconds(100));
  } else {
    tp::cuda::check(status, "cudaEventQuery");
    waited_ = Clock::duration::zero();
  }
  looked_ = now;
  if (waited_ > timeout_)
    throw Error(ErrorKind::rank,
                fmt::format("rank {} waited {} s for GPU {} to come to the end of {}; --timeout-s "
                            "sets the limit",
                            rank(), static_cast<double>(timeout_.count()) / 1000, gpu(),
                            last_.to_string()));
}

void check_on_gpu(const Call& call, ConstTensorView x) {
  if (x.place != Place::cuda && x.shape.elements() > 0)
    throw Error(ErrorKind::rank,
                fmt::format("{}: the tensor lives on the host, but the ranks compute on GPUs; "
                            "upload it first",
                            call.to_string()));
}

}  // namespace tp::cuda

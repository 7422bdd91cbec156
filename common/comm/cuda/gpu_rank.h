// What the communicators between GPUs share: where their rank computes, and how long it waits.
// [introduced in chapter 01]
#pragma once

#include <chrono>
#include <functional>

#include <cuda_runtime_api.h>

#include "common/comm/call.h"
#include "common/comm/group.h"
#include "common/core/tensor.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/handles.h"

namespace tp::cuda {

// A call of a communicator only queues work on the GPU. The host finds out that something is wrong
// when it waits for the results, in Device::synchronize or download, which ask this object again
// and again whether to go on (Device::while_waiting). So nobody waits for ever for a rank that is
// lost.
class GpuRank {
 public:
  GpuRank(CudaDevice& device, Group& group, std::chrono::milliseconds timeout);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  int gpu() const { return device_.gpu(); }
  cudaStream_t stream() const { return device_.stream(); }
  Group& group() { return group_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // The device records what is queued now instead of running it.
  bool capturing() const;

  // Behind the work of a call: from here on the time-out counts, while the host waits and until the
  // GPU has done it.
  void queued(const Call& call);

  // What else can be wrong while the host waits, and what to do before the rank gives up. Both may
  // be empty; `trouble` throws.
  void watch(std::function<void()> trouble, std::function<void()> give_up);

 private:
  void check();
  void check_progress();

  CudaDevice& device_;
  Group& group_;
  std::chrono::milliseconds timeout_;
  std::function<void()> trouble_, give_up_;
  Event done_;  // behind the last call
  Call last_;
  std::chrono::steady_clock::time_point looked_;
  std::chrono::steady_clock::duration waited_{0};
};

// Errors: tp::Error (rank) naming the operation unless the tensor is on a GPU.
void check_on_gpu(const Call& call, ConstTensorView x);

}  // namespace tp::cuda

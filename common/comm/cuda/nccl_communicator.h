// Collectives by NCCL: one rank per GPU, one thread per rank. [introduced in chapter 01]
//
// NCCL has no time-out and does not compare what the ranks call: ranks that disagree wait for each
// other for ever, or get wrong sums. So the ranks compare each call on the host before they queue
// it, and whoever waits for the GPU watches three things: whether another rank has failed, whether
// NCCL reports an error, and the time. A rank that gives up calls ncclCommAbort first, which ends
// NCCL's kernels on its GPU; without that even freeing memory there would wait for ever.
//
// The sum is NCCL's own: the order of the addends depends on the algorithm that it picks for the
// size and the machine, and with bf16 tensors a sum may be rounded at every hop. So results differ
// in their last bits from those of the other communicators, but not between the ranks.
// Source: NVIDIA, NCCL user guide, "Fault Tolerance" and "Creating a communicator with options".
#pragma once

#include <functional>

#include <nccl.h>

#include "common/comm/communicator.h"
#include "common/comm/cuda/gpu_rank.h"

namespace tp::cuda {

class NcclCommunicator final : public Communicator {
 public:
  // See make_nccl_communicator (nccl.h).
  NcclCommunicator(CudaDevice& device, Group& group, std::chrono::milliseconds timeout);
  ~NcclCommunicator() override;

  int rank() const override { return me_.rank(); }
  int size() const override { return me_.size(); }
  // Each rank captures its own step. All operations of the step must have run once before, because
  // NCCL connects the ranks when they first need it.
  bool can_capture() const override { return true; }

 private:
  void do_all_reduce(const Call& call, TensorView x) override;
  void do_all_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) override;
  void do_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_broadcast(const Call& call, TensorView x) override;
  void do_send(const Call& call, ConstTensorView x) override;
  void do_recv(const Call& call, TensorView x) override;
  void do_barrier(const Call& call) override;
  void do_replayed(std::span<const Call> calls) override;

  // Queues what `start` calls of NCCL, and waits until NCCL has taken it.
  void queue(const Call& call, const std::function<ncclResult_t()>& start);
  // Waits until a call that may go on in the background is done.
  // Errors: as make_nccl_communicator.
  void settle(ncclResult_t result, const std::string& what);
  ncclResult_t state();
  void abort();
  [[noreturn]] void fail(ncclResult_t result, const std::string& what);

  GpuRank me_;
  ncclComm_t comm_ = nullptr;  // none any more after an abort
};

}  // namespace tp::cuda

// Collectives between ranks that are threads. [introduced in chapter 01]
//
// Every operation is a row of meetings in the hub: each rank brings a chunk of its own tensor and
// takes what it needs from the others' chunks. One meeting per chunk, no lock, no allocation.
#pragma once

#include "common/comm/communicator.h"
#include "common/comm/thread_hub.h"

namespace tp {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadHub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.ranks(); }

 private:
  void do_all_reduce(const Call& call, TensorView x) override;
  void do_all_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) override;
  void do_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_broadcast(const Call& call, TensorView x) override;
  void do_send(const Call& call, ConstTensorView x) override;
  void do_recv(const Call& call, TensorView x) override;
  void do_barrier(const Call& call) override;

  // Copies what the ranks brought to the last meeting to `whole`, the parts `part_bytes` apart.
  void collect(std::byte* whole, std::size_t part_bytes, std::size_t offset);
  // Sums what the ranks brought to the last meeting into `sum`.
  void sum_brought(DType dtype, std::byte* sum);

  ThreadHub& hub_;
  int rank_;
};

}  // namespace tp

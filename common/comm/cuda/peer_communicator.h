// Collectives between ranks of one process whose GPUs can read each other's memory: several virtual
// ranks on one GPU, or several GPUs. [introduced in chapter 01]
//
// Every operation is a row of meetings. For a meeting a rank copies a piece of its tensor into its
// staging buffer, records an event behind that, and meets the others on the host, which is also the
// audit; then it lets its stream wait for the events of all ranks, and what it queues afterwards
// may read what all of them brought. No kernel waits for another one: the streams are ordered by
// events.
//
// All-reduce in one shot: every rank reads the pieces of all ranks and adds them. In two shots:
// every rank adds its slice of the piece, in a second meeting each brings its sum and collects the
// others'. A rank then reads 2 (n-1)/n pieces instead of n-1, at the price of a meeting. Both add
// in the order of comm/tree_sum.h, so the ranks hold the same bits, those of the ranks on the CPU.
//
// Two staging buffers, used in turn, are enough. Let rank r write its buffer for meeting m+2, the
// one of meeting m. A peer p read it in work that p queued before it recorded its event of meeting
// m+1, and r's stream waits for that event in meeting m+1, before it writes. The same with the
// host's side of events: p records again, for m+2, the event of meeting m only after meeting m+1,
// to which r came after it had told its stream to wait for that event.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/cuda/gpu_rank.h"
#include "common/comm/cuda/peer_staging.h"
#include "common/core/range.h"

namespace tp::cuda {

class PeerCommunicator final : public Communicator {
 public:
  // Ranks: all, each from its own thread with its GPU current. The staging outlives them.
  PeerCommunicator(PeerStaging& staging,
                   CudaDevice& device,
                   Group& group,
                   std::chrono::milliseconds timeout);

  int rank() const override { return me_.rank(); }
  int size() const override { return me_.size(); }
  // The ranks meet on the host, which a replayed step does not. One rank has nobody to meet.
  bool can_capture() const override { return size() == 1; }

 private:
  void do_all_reduce(const Call& call, TensorView x) override;
  void do_all_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) override;
  void do_gather(const Call& call, ConstTensorView part, TensorView whole) override;
  void do_broadcast(const Call& call, TensorView x) override;
  void do_send(const Call& call, ConstTensorView x) override;
  void do_recv(const Call& call, TensorView x) override;
  void do_barrier(const Call& call) override;

  void reduce_in_one_shot(const Call& call, std::byte* x, std::size_t bytes);
  void reduce_in_two_shots(const Call& call, std::byte* x, std::size_t bytes);
  // out[0..bytes) = the sum of this rank's `mine` and of what the others brought at `offset`.
  void sum(
      DType dtype, const std::byte* mine, std::size_t offset, std::size_t bytes, std::byte* out);
  // Collects the parts of all ranks, of which each has brought a piece.
  void collect(const std::byte* mine, std::size_t bytes, std::byte* whole, std::size_t part_bytes);

  // Copies to the staging buffer of the next meeting.
  void bring(const std::byte* from, std::size_t bytes, std::size_t offset = 0);
  void meet(const Call& call);
  // What rank r brought to the last meeting.
  const PeerStaging::Buffer& brought(int r);
  // Copies some of it to memory of this rank, or makes it readable for a kernel of this rank.
  void copy_brought(int r, std::size_t offset, std::size_t bytes, std::byte* to);
  const std::byte* readable(int r, std::size_t offset, std::size_t bytes);

  void copy_out(const std::byte* from, std::size_t bytes, std::byte* buffer);
  void copy_in(const std::byte* buffer, int gpu, std::size_t bytes, std::byte* to);
  void copy_here(const std::byte* from, std::size_t bytes, std::byte* to);
  void wait_for(const Event& event);
  void record(const Event& event);

  PeerStaging& staging_;
  GpuRank me_;
  std::uint64_t meetings_ = 0;
};

}  // namespace tp::cuda

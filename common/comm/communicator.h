// Collective operations on tensors. [introduced in chapter 01]
//
// The public functions check shapes, number the call, and write it into the ledger; the private
// virtual ones move the data. Before a rank reads what another one sent, all ranks have compared
// their calls, so a mismatch is an error that names both sides, never a hang or a wrong sum.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/ledger.h"
#include "common/core/tensor.h"

namespace tp {

// Ranks:  every rank of the group makes the same collective calls in the same order. send and recv
//         concern two ranks only.
// Label:  says in the ledger what the call was for.
// Errors: tp::Error (rank) if the calls of two ranks differ, a rank does not arrive within the
//         time-out, or a rank has left; Aborted if another rank failed.
// Shapes: tensors are contiguous, of dtype f32 or bf16 (all_reduce, reduce_scatter) or any.
// Stream: between GPUs a call only queues its work behind that of the device, and the ledger's time
//         is what this takes.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces x by the sum of all ranks' x, element by element. The sum is made in f32, in the
  // fixed order of a binary tree over the ranks, so every rank holds the same bits; bf16 is
  // rounded once, after the sum. NCCL adds in an order of its own (cuda/nccl_communicator.h).
  // In place. Moves: payload = the bytes of x.
  void all_reduce(TensorView x, std::string_view label);

  // Puts the parts of all ranks, in rank order, one behind the other into `whole` on every rank.
  // Shapes: whole has size() times the elements of part. Moves: payload = the bytes of whole.
  void all_gather(ConstTensorView part, TensorView whole, std::string_view label);

  // [no chapter uses it yet]
  // Sums `whole` over all ranks and leaves the rank-th of size() equal parts in `part`.
  // Shapes: as all_gather. Moves: payload = the bytes of whole.
  void reduce_scatter(ConstTensorView whole, TensorView part, std::string_view label);

  // Like all_gather, but only `root` receives; `whole` is ignored on the others.
  // Moves: payload = the bytes of whole.
  void gather(ConstTensorView part, TensorView whole, int root, std::string_view label);

  // Copies root's x to every rank. In place. Moves: payload = the bytes of x.
  void broadcast(TensorView x, int root, std::string_view label);

  // [no chapter uses it yet]
  // Sends x to one rank, which must receive it with the same shape. The caller may overwrite x
  // when send returns, which for large tensors is when the receiver takes them: of two ranks that
  // exchange tensors, one must receive first. Calls between the same two ranks meet in their order.
  void send(ConstTensorView x, int to, std::string_view label);
  void recv(TensorView x, int from, std::string_view label);

  // Returns when all ranks have called it.
  void barrier(std::string_view label);

  // Whether calls may be part of a step that the device captures (Device::begin_capture). [chapter
  // 06]
  virtual bool can_capture() const { return false; }
  // Between these two, calls are numbered and audited as ever, but not counted: their data moves
  // when the step is replayed. stop_recording returns them in their order.
  void start_recording();
  std::vector<Call> stop_recording();
  // Numbers and counts the calls of a step that the device replays. Their time is not known: 0.
  void replayed(std::span<const Call> calls);

  const Ledger& ledger() const { return ledger_; }
  // The last call that was begun, for error messages; sequence 0 if there was none.
  const Call& last_call() const { return call_; }

 private:
  virtual void do_all_reduce(const Call& call, TensorView x) = 0;
  virtual void do_all_gather(const Call& call, ConstTensorView part, TensorView whole) = 0;
  virtual void do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) = 0;
  virtual void do_gather(const Call& call, ConstTensorView part, TensorView whole) = 0;
  virtual void do_broadcast(const Call& call, TensorView x) = 0;
  virtual void do_send(const Call& call, ConstTensorView x) = 0;
  virtual void do_recv(const Call& call, TensorView x) = 0;
  virtual void do_barrier(const Call& call) = 0;
  virtual void do_replayed(std::span<const Call> /*calls*/) {}

  template <class Move>
  void run(Call call, std::string_view label, const Move& move);
  // The number of the last call of this kind, counted up by the next one.
  std::uint64_t& number(Op op, int peer);

  Ledger ledger_;
  bool recording_ = false;
  std::vector<Call> recorded_;
  Call call_;
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // numbers of point-to-point calls, per partner
};

}  // namespace tp

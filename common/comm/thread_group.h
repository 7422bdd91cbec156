// The host group of ranks that are threads. [introduced in chapter 01]
#pragma once

#include "common/comm/group.h"
#include "common/comm/thread_hub.h"

namespace tp {

class ThreadGroup final : public Group {
 public:
  ThreadGroup(ThreadHub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.ranks(); }
  void barrier() override;
  std::span<const std::byte> exchange(std::span<const std::byte> record) override;
  void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override;
  void meet(const Call& call) override { hub_.meet(rank_, call, {}); }
  void post(const Call& call, int to) override { hub_.post(rank_, to, call, {}); }
  void take(const Call& call, int from) override { hub_.take(from, rank_, call, {}); }
  void abort(const std::string& reason) noexcept override { hub_.abort(reason); }
  bool aborted() const noexcept override { return hub_.aborted(); }

 private:
  Call next_call(Op op, std::size_t size, int root);

  ThreadHub& hub_;
  int rank_;
  std::uint64_t calls_ = 0;
  std::vector<std::byte> exchanged_;
};

}  // namespace tp

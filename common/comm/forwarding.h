// A communicator and a group that pass every call on to another one. Faults and tests override the
// call that they spoil. [introduced in chapter 01]
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "common/comm/communicator.h"
#include "common/comm/group.h"

namespace tp {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool can_capture() const override { return inner_->can_capture(); }

 protected:
  Communicator& inner() { return *inner_; }
  bool is_last_rank() const { return rank() == size() - 1; }

 private:
  void do_all_reduce(const Call& call, TensorView x) override {
    inner_->all_reduce(x, call.label.data());
  }
  void do_all_gather(const Call& call, ConstTensorView part, TensorView whole) override {
    inner_->all_gather(part, whole, call.label.data());
  }
  void do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) override {
    inner_->reduce_scatter(whole, part, call.label.data());
  }
  void do_gather(const Call& call, ConstTensorView part, TensorView whole) override {
    inner_->gather(part, whole, call.peer, call.label.data());
  }
  void do_broadcast(const Call& call, TensorView x) override {
    inner_->broadcast(x, call.peer, call.label.data());
  }
  void do_send(const Call& call, ConstTensorView x) override {
    inner_->send(x, call.peer, call.label.data());
  }
  void do_recv(const Call& call, TensorView x) override {
    inner_->recv(x, call.peer, call.label.data());
  }
  void do_barrier(const Call& call) override { inner_->barrier(call.label.data()); }
  void do_replayed(std::span<const Call> calls) override { inner_->replayed(calls); }

  std::unique_ptr<Communicator> inner_;
};

class ForwardingGroup : public Group {
 public:
  explicit ForwardingGroup(std::unique_ptr<Group> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void barrier() override { inner_->barrier(); }
  std::span<const std::byte> exchange(std::span<const std::byte> record) override {
    return inner_->exchange(record);
  }
  void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override {
    inner_->broadcast(bytes, root, patience);
  }
  void meet(const Call& call) override { inner_->meet(call); }
  void post(const Call& call, int to) override { inner_->post(call, to); }
  void take(const Call& call, int from) override { inner_->take(call, from); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  bool aborted() const noexcept override { return inner_->aborted(); }

 private:
  std::unique_ptr<Group> inner_;
};

}  // namespace tp

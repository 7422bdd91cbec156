#include "common/parallel/faults.h"

#include <utility>

#include "common/comm/forwarding.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

class SkipAllReduce final : public ForwardingCommunicator {
  using ForwardingCommunicator::ForwardingCommunicator;
  void do_all_reduce(const Call&, TensorView) override {}
};

// Gathers the addends side by side and keeps as much as fits where the sum belongs.
class ConcatInsteadOfSum final : public ForwardingCommunicator {
 public:
  ConcatInsteadOfSum(std::unique_ptr<Communicator> inner_comm, Device& device)
      : ForwardingCommunicator(std::move(inner_comm)), device_(device) {}

 private:
  void do_all_reduce(const Call& call, TensorView x) override {
    Tensor side_by_side = device_.allocate({size(), x.shape.elements()}, x.dtype, "fault");
    inner().all_gather(x, side_by_side, call.label.data());
    TensorView flat = x;
    flat.shape = {1, x.shape.elements()};
    device_.copy(side_by_side.view().rows_in({0, 1}), flat);
    device_.synchronize();  // the tensor goes
  }

  Device& device_;
};

class ActivationBeforeSum final : public ForwardingCommunicator {
 public:
  ActivationBeforeSum(std::unique_ptr<Communicator> inner_comm, Device& device)
      : ForwardingCommunicator(std::move(inner_comm)), device_(device) {}

 private:
  void do_all_reduce(const Call& call, TensorView x) override {
    device_.activate(x, Activation::gelu);
    inner().all_reduce(x, call.label.data());
  }

  Device& device_;
};

// The last rank's first all_reduce differs from the others' in one thing.
class MismatchedCollective final : public ForwardingCommunicator {
 public:
  MismatchedCollective(std::unique_ptr<Communicator> inner_comm, std::string what)
      : ForwardingCommunicator(std::move(inner_comm)), what_(std::move(what)) {}

 private:
  void do_all_reduce(const Call& call, TensorView x) override {
    const bool wrong = is_last_rank() && !std::exchange(done_, true);
    const char* label = call.label.data();
    TensorView flat = x;
    flat.shape = {x.shape.elements()};
    flat.row_stride = 1;
    if (what_ == "root" && call.sequence == 1)
      return inner().broadcast(x, wrong ? rank() : 0, label);
    if (!wrong) return inner().all_reduce(x, label);
    if (what_ == "missing") return;
    if (what_ == "operation") return inner().broadcast(x, 0, label);
    if (what_ == "order") {
      inner().barrier("this comes too early");
      return inner().all_reduce(x, label);
    }
    if (what_ == "dtype") flat.dtype = DType::bf16;
    if (what_ == "count") flat = flat.rows_in({0, flat.rows() - 1});
    inner().all_reduce(flat, label);
  }

  std::string what_;
  bool done_ = false;
};

constexpr char kMismatch[] = "mismatched_collective";

}  // namespace

std::vector<Fault> mismatched_collective_faults() {
  const std::string name = kMismatch;
  return {{name, "the last rank's first all_reduce is one element short"},
          {name + ":operation", "it calls broadcast instead"},
          {name + ":count", "the same as without a colon"},
          {name + ":dtype", "it says bf16"},
          {name + ":root", "it names another root"},
          {name + ":order", "it calls something else first"},
          {name + ":missing", "it does not call at all"}};
}

Launch with_fault(Launch launch, const std::string& fault) {
  using Comm = std::unique_ptr<Communicator>;
  if (fault == "skip_all_reduce")
    launch.wrap_communicator = [](Comm c, Device&) -> Comm {
      return std::make_unique<SkipAllReduce>(std::move(c));
    };
  if (fault == "concat_instead_of_sum")
    launch.wrap_communicator = [](Comm c, Device& device) -> Comm {
      return std::make_unique<ConcatInsteadOfSum>(std::move(c), device);
    };
  if (fault == "activation_before_sum")
    launch.wrap_communicator = [](Comm c, Device& device) -> Comm {
      return std::make_unique<ActivationBeforeSum>(std::move(c), device);
    };
  if (fault.starts_with(kMismatch)) {
    const std::size_t colon = fault.find(':');
    const std::string what = colon == std::string::npos ? "count" : fault.substr(colon + 1);
    launch.wrap_communicator = [what](Comm c, Device&) -> Comm {
      return std::make_unique<MismatchedCollective>(std::move(c), what);
    };
  }
  return launch;
}

float bias_factor(const RankContext& ctx, const std::string& fault) {
  return fault == "bias_added_tp_times" ? static_cast<float>(ctx.tp_size) : 1.0f;
}

RankContext row_shard_owner(const RankContext& ctx,
                            const std::string& fault,
                            std::int64_t features) {
  const auto width = [&](int rank) { return shard_range(features, rank, ctx.tp_size).size(); };
  const int opposite = ctx.tp_size - 1 - ctx.rank;
  const bool swap = fault == "shards_swapped" && width(opposite) == width(ctx.rank);
  return {swap ? opposite : ctx.rank, ctx.tp_size, ctx.device, ctx.comm, ctx.group};
}

}  // namespace tp

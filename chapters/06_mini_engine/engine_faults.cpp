#include "engine_faults.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/random.h"
#include "common/engine/step.h"
#include "common/parallel/faults.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// A rank that draws the next token for itself instead of taking rank 0's: it goes on with another
// one.
class OwnTokens final : public Group {
 public:
  OwnTokens(std::unique_ptr<Group> inner, std::int64_t vocab_size)
      : inner_(std::move(inner)), vocab_size_(static_cast<std::uint64_t>(vocab_size)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void barrier() override { inner_->barrier(); }
  std::span<const std::byte> exchange(std::span<const std::byte> record) override {
    return inner_->exchange(record);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

  void broadcast(std::vector<std::byte>& bytes, int root) override {
    inner_->broadcast(bytes, root);
    Step step = Step::decode(bytes);
    const bool decoding = step.ids.size() == 1 && step.first_position > 0;
    if (!decoding || rank() != size() - 1) return;
    step.ids[0] = static_cast<std::int32_t>(
        random_bits(1, static_cast<std::uint64_t>(step.first_position)) % vocab_size_);
    step.encode(bytes);
  }

 private:
  std::unique_ptr<Group> inner_;
  std::uint64_t vocab_size_;
};

}  // namespace

std::vector<Fault> engine_faults() {
  std::vector<Fault> faults{
      {"bias_added_tp_times", "every rank adds the row-parallel biases before the sum"},
      {"concat_instead_of_sum", "partial sums are put side by side instead of being added"},
      {"skip_all_reduce", "partial sums are taken for the result"},
      {"shards_swapped", "o_proj and down_proj shards are dealt in reverse order"},
      {"wrong_kv_map", "each rank loads the KV heads of the next one"},
      {"unmasked_vocab_pads", "the padding rows of the vocabulary count as tokens"},
      {"rank_local_sampling", "the last rank draws its tokens itself"}};
  for (const Fault& fault : mismatched_collective_faults()) faults.push_back(fault);
  return faults;
}

void check_fault_applies(const std::string& fault, const ModelConfig& config, int tp_size) {
  const auto refuse = [&](const std::string& why) {
    throw input_error(fmt::format("--fault {}: {}", fault, why));
  };
  if (fault.empty()) return;
  if (tp_size < 2) refuse("one rank cannot show it; use --tp 2 or more");
  if (fault == "bias_added_tp_times" && !config.attention_bias && !config.mlp_bias)
    refuse("this model has no row-parallel bias (attention_bias and mlp_bias are false)");
  if (fault == "unmasked_vocab_pads" && config.vocab_size % tp_size == 0)
    refuse(fmt::format("vocab_size={} is a multiple of {}, so there are no pads", config.vocab_size,
                       tp_size));
  if (fault == "wrong_kv_map" && config.num_key_value_heads == 1)
    refuse("the model has only one KV head");
}

Launch with_engine_fault(Launch launch, const std::string& fault, const ModelConfig& config) {
  launch = with_fault(std::move(launch), fault);
  if (fault == "rank_local_sampling")
    launch.wrap_group =
        [vocab_size = config.vocab_size](std::unique_ptr<Group> group) -> std::unique_ptr<Group> {
      return std::make_unique<OwnTokens>(std::move(group), vocab_size);
    };
  return launch;
}

DecoderShard shard_with_fault(const std::string& fault,
                              const ModelConfig& config,
                              int rank,
                              int tp_size) {
  DecoderShard shard = DecoderShard::of(config, rank, tp_size);
  if (fault == "wrong_kv_map") {
    const HeadShard next = head_shard(config.num_attention_heads, config.num_key_value_heads,
                                      (rank + 1) % tp_size, tp_size);
    if (next.kv.size() == shard.kv_loaded.size()) shard.kv_loaded = next.kv;
  }
  if (fault == "unmasked_vocab_pads") shard.vocab.valid = shard.vocab.rows.size() * tp_size;
  if (fault == "shards_swapped") {
    const int opposite = tp_size - 1 - rank;
    const auto width = [&](std::int64_t total, int r) {
      return shard_range(total, r, tp_size).size();
    };
    if (width(config.num_attention_heads, opposite) == width(config.num_attention_heads, rank) &&
        width(config.intermediate_size, opposite) == width(config.intermediate_size, rank))
      shard.row_part = opposite;
  }
  return shard;
}

void spoil_loaded(const std::string& fault, Decoder& decoder, int tp_size) {
  if (fault != "bias_added_tp_times") return;
  decoder.for_each_row_parallel_bias([&](TensorView bias) {
    Tensor widened = Tensor::on_host(bias.shape);
    copy_host(bias, widened);
    for (std::int64_t i = 0; i < bias.shape.elements(); ++i)
      widened.view().row<float>(0)[i] *= static_cast<float>(tp_size);
    copy_host(widened, bias);
  });
}

}  // namespace tp

#include "engine_faults.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/comm/forwarding.h"
#include "common/core/error.h"
#include "common/core/random.h"
#include "common/engine/batch_plan.h"
#include "common/engine/plan_faults.h"
#include "common/parallel/faults.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// A rank that draws the next tokens for itself instead of taking rank 0's: it goes on with others.
class OwnTokens final : public ForwardingGroup {
 public:
  OwnTokens(std::unique_ptr<Group> inner, std::int64_t vocab_size)
      : ForwardingGroup(std::move(inner)), vocab_size_(static_cast<std::uint64_t>(vocab_size)) {}

  void broadcast(std::vector<std::byte>& bytes, int root) override {
    ForwardingGroup::broadcast(bytes, root);
    if (rank() != size() - 1) return;
    BatchPlan plan;
    plan.decode(bytes);
    std::size_t row = 0;
    for (const PlannedSequence& s : plan.sequences) {
      const bool decoding = s.rows == 1 && plan.positions[row] > 0;
      if (decoding)
        plan.token_ids[row] = static_cast<std::int32_t>(
            random_bits(1, static_cast<std::uint64_t>(plan.positions[row])) % vocab_size_);
      row += static_cast<std::size_t>(s.rows);
    }
    plan.encode(bytes);
  }

 private:
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
  for (const Fault& fault : plan_faults()) faults.push_back(fault);
  for (const Fault& fault : mismatched_collective_faults()) faults.push_back(fault);
  return faults;
}

void check_fault_applies(const std::string& fault, const Job& job, int tp_size) {
  const ModelConfig& config = job.config;
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
  const bool of_plan = fault == "rank_chooses_own_blocks" || fault == "shuffled_rows";
  if (of_plan && (job.entries.size() < 2 || job.limits.max_num_seqs < 2))
    refuse("it takes two sequences that run together; give two prompts and --max-num-seqs 2");
}

Launch with_engine_fault(Launch launch, const std::string& fault, const Job& job) {
  launch = with_plan_fault(with_fault(std::move(launch), fault), fault, job.block_size);
  if (fault == "rank_local_sampling")
    launch.wrap_group = [vocab_size = job.config.vocab_size](
                            std::unique_ptr<Group> group) -> std::unique_ptr<Group> {
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

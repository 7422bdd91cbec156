#include "engine_faults.h"

#include <algorithm>
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

// A rank that draws the next tokens for itself instead of taking rank 0's. It draws those whose
// embedding it holds: its part of the embedding of any other token is zeros, like that of rank 0's.
class OwnTokens final : public ForwardingGroup {
 public:
  OwnTokens(std::unique_ptr<Group> inner, Range held)
      : ForwardingGroup(std::move(inner)), held_(held) {}

  void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override {
    ForwardingGroup::broadcast(bytes, root, patience);
    if (rank() != size() - 1) return;
    BatchPlan plan;
    plan.decode(bytes);
    std::size_t row = 0;
    for (const PlannedSequence& s : plan.sequences) {
      const bool decoding = s.rows == 1 && plan.positions[row] > 0;
      if (decoding) plan.token_ids[row] = draw(plan.positions[row], plan.token_ids[row]);
      row += static_cast<std::size_t>(s.rows);
    }
    plan.encode(bytes);
  }

 private:
  // Any held token but the one that rank 0 has drawn.
  std::int32_t draw(std::int32_t position, std::int32_t right) const {
    const std::uint64_t random = random_bits(1, static_cast<std::uint64_t>(position));
    const auto count = static_cast<std::uint64_t>(held_.size());
    std::int64_t drawn = held_.begin + static_cast<std::int64_t>(random % count);
    if (drawn == right) drawn = held_.begin + static_cast<std::int64_t>((random + 1) % count);
    return static_cast<std::int32_t>(drawn);
  }

  Range held_;
};

// True if some rank has an opposite one with as many input features of o_proj and down_proj.
bool can_swap_row_shards(const ModelConfig& config, int tp_size) {
  for (int rank = 0; rank < tp_size; ++rank)
    if (shard_with_fault("shards_swapped", config, rank, tp_size).row_part != rank) return true;
  return false;
}

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
  if (fault == "bias_added_tp_times" && !config.o_bias && !config.mlp_bias)
    refuse("this model has no row-parallel bias, neither of o_proj nor of down_proj");
  if (fault == "unmasked_vocab_pads" && config.vocab_size % tp_size == 0)
    refuse(fmt::format("vocab_size={} is a multiple of {}, so there are no pads", config.vocab_size,
                       tp_size));
  if (fault == "wrong_kv_map" && config.num_key_value_heads == 1)
    refuse("the model has only one KV head");
  if (fault == "shards_swapped" && !can_swap_row_shards(config, tp_size))
    refuse("no two opposite ranks have shards of the same size");
  if (fault == "rank_local_sampling" &&
      std::none_of(job.entries.begin(), job.entries.end(), [](const JobEntry& entry) {
        return entry.error.empty() && entry.request.max_new_tokens > 1;
      }))
    refuse("it shows from the second new token on; use --max-tokens 2 or more");
  const bool of_plan = fault == "rank_chooses_own_blocks" || fault == "shuffled_rows";
  if (of_plan && (job.entries.size() < 2 || job.limits.max_num_seqs < 2))
    refuse("it takes two sequences that run together; give two prompts and --max-num-seqs 2");
}

Launch with_engine_fault(Launch launch, const std::string& fault, const Job& job) {
  launch = with_plan_fault(with_fault(std::move(launch), fault), fault, job.block_size);
  if (fault == "rank_local_sampling")
    launch.wrap_group = [&config =
                             job.config](std::unique_ptr<Group> group) -> std::unique_ptr<Group> {
      const Range rows = vocab_shard(config.vocab_size, group->rank(), group->size()).rows;
      const Range held{rows.begin, std::min(rows.end, config.vocab_size)};
      return std::make_unique<OwnTokens>(std::move(group), held);
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

void spoil_loaded(const RankContext& ctx, const std::string& fault, Decoder& decoder) {
  if (fault != "bias_added_tp_times") return;
  decoder.for_each_row_parallel_bias([&](TensorView bias) {
    Tensor widened = Tensor::on_host(bias.shape);
    copy_host(ctx.device.download(bias), widened);
    for (std::int64_t i = 0; i < bias.shape.elements(); ++i)
      widened.view().row<float>(0)[i] *= static_cast<float>(ctx.tp_size);
    ctx.device.write(widened, bias);
  });
}

}  // namespace tp

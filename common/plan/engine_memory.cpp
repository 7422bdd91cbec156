#include "common/plan/engine_memory.h"

#include <algorithm>

#include "common/parallel/shards.h"

namespace tp {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// The most tokens that one query looks at, in whole blocks.
std::int64_t scores_of(const ModelConfig& config, std::int64_t context, std::int64_t block_size) {
  std::int64_t most = 0;
  for (const std::int64_t window : config.sliding_windows)
    most = std::max(most, attended_positions(context - 1, window).size());
  return blocks_for(most, block_size) * block_size;
}

}  // namespace

StepMemory StepMemory::of(const ModelConfig& config,
                          const DecoderLimits& limits,
                          int rank,
                          int tp_size,
                          std::int64_t longest_context) {
  const HeadShard heads =
      head_shard(config.num_attention_heads, config.num_key_value_heads, rank, tp_size);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q = heads.query.size() * config.head_dim;
  const std::int64_t kv = heads.kv.size() * config.head_dim;
  const std::int64_t features = shard_range(config.intermediate_size, rank, tp_size).size();
  // The residual stream, its norm, and the projection added to it; q and what attention makes of
  // it; k and v; gate and up; their product.
  const std::int64_t of_a_token = 3 * hidden + 2 * q + 2 * kv + 2 * features + features;

  // Logits travel in parts as wide as the widest, one from each rank and one to send.
  const std::int64_t vocab_rows = vocab_shard(config.vocab_size, rank, tp_size).rows.size();
  const std::int64_t widest = std::min(vocab_rows, config.vocab_size);
  std::int64_t of_a_logit_row = hidden + vocab_rows + (tp_size + 1) * widest;
  if (rank == 0) of_a_logit_row += config.vocab_size;

  return {.activation_bytes = (limits.max_num_batched_tokens * of_a_token +
                               limits.max_logit_rows * of_a_logit_row) *
                              kFloat,
          .rope_bytes = limits.max_model_len * config.head_dim * kFloat,  // cosines and sines
          .workspace_bytes = scores_of(config, longest_context, limits.block_size) * kFloat};
}

MemoryByTag engine_memory(const CardPlan& card,
                          const StepMemory& step,
                          std::int64_t blocks,
                          std::int64_t block_size) {
  return {{"weights", card.weights.total()},
          {"kv", blocks * block_size * card.kv_bytes_per_token},
          {"activations", card.overhead.activation_bytes},
          {"rope", step.rope_bytes},
          {"workspace", step.workspace_bytes}};
}

}  // namespace tp

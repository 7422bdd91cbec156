// The planner's own command line options, as they were typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/options.h"

namespace tp {

struct PlanOptions {
  std::string model;  // folder or config.json; empty: the shape of Llama-3-70B, or sizes
  // Sizes by their keys in config.json.
  std::optional<std::int64_t> hidden_size, intermediate_size, num_hidden_layers,
      num_attention_heads, num_key_value_heads, head_dim, vocab_size, max_position_embeddings;
  std::string model_type;
  bool tie_word_embeddings = false;

  std::string card;
  std::optional<double> card_memory_gib;
  std::optional<std::int64_t> cards;
  std::optional<std::int64_t> pp;
  std::optional<std::int64_t> max_model_len, concurrency;
  std::optional<std::int64_t> quant_group;
  std::int64_t block_size = 16;
  std::optional<std::int64_t> context_mib, communication_mib, activations_mib;
  bool articles = false;
  bool verify = false;
};

// The options with their flags and help texts, for ChapterSpec.
std::vector<ExtraOption> plan_flags(PlanOptions& options);

}  // namespace tp

// The mini engine's own command line options, as they were typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/options.h"

namespace tp {

struct EngineOptions {
  std::string model;  // folder; empty: the bundled one
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_ids;  // "1,2,3"
  std::string prompt_file;              // "-": standard input
  std::string chat;                     // name of a template; empty: prompts are gone on with
  std::string system;                   // of a chat; empty: the model's own
  std::int64_t max_tokens = 64;
  bool ignore_eos = false;
  std::optional<double> temperature, top_p;
  std::optional<std::int64_t> top_k;
  std::string sampling;  // "model", or empty

  std::optional<std::int64_t> max_model_len, max_num_seqs, max_num_batched_tokens,
      chunked_prefill_size;
  std::int64_t block_size = 16;
  std::optional<std::int64_t> kv_blocks, kv_memory_mib;
  bool no_plan_hash = false;
  bool enforce_eager = false;
  std::optional<std::int64_t> show_batch;
  std::string compare = "tokens";
  bool explain_load = false;
};

// The options with their flags and help texts, for ChapterSpec.
std::vector<ExtraOption> engine_flags(EngineOptions& engine);

}  // namespace tp

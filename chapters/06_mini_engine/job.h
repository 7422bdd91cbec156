// What is to be done, checked before any work starts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/engine/engine.h"
#include "common/engine/kv_pool.h"
#include "common/model/chat_template.h"
#include "common/model/config.h"
#include "common/model/decoder.h"
#include "common/model/one_device_decoder.h"
#include "common/model/tokenizer.h"
#include "common/parallel/compare_ranks.h"
#include "engine_options.h"

namespace tp {

// How many bytes of logits are kept for comparisons.
inline constexpr std::int64_t kKeptLogitBytes = std::int64_t{64} << 20;

// A request, or why a line of the prompt file is none.
struct JobEntry {
  std::string name;  // "--prompt "It was"" or "prompts.txt:3"
  Request request;
  std::string error;
};

// A model folder, read but for its weights, and what is to be done with it.
struct Job {
  std::filesystem::path folder;
  ModelConfig config;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;
  std::optional<std::string> system;  // of a chat, instead of the model's own
  std::optional<DType> store_as;
  DType kv_dtype = DType::f32;
  Accuracy accuracy;     // of the ranks, against one device
  GpuRounding rounding;  // of that one device, as the ranks round
  std::vector<JobEntry> entries;
  SchedulerLimits limits;
  std::int64_t block_size = 0;
  std::vector<KvBudget> kv_budgets;  // of each rank
  KvPoolSize pool;                   // the same number of blocks on every rank

  // Errors: tp::Error (input) with all problems at once. A prompt of the command line that can
  //         never run is one; a line of the prompt file is not: it becomes an entry with an error.
  static Job prepare(const Options& options, const EngineOptions& engine);

  // Sets `accuracy` and `rounding` for ranks on the device of the options.
  void set_accuracy(const Options& options, const Weights& weights);

  // The ids of a text as the model wants it: with the special tokens that stand around every text,
  // or as a question of a chat.
  std::vector<std::int32_t> prompt_ids(const std::string& text) const;

  // The most tokens of one sequence that can be in the cache.
  std::int64_t max_cached_tokens() const;
  // With room for the logits of every row, or only for one row of each sequence, and without a KV
  // cache, which is made behind everything else.
  DecoderLimits decoder_limits(bool all_logits) const;
};

// What this rank can spend on its KV cache: what the job wants, on a GPU no more than what is left of
// its share of the memory when the rest is loaded.
// Errors: tp::Error (input) if the command line asks for more than there is.
KvBudget kv_budget(const RankContext& ctx,
                   const Options& options,
                   const EngineOptions& engine,
                   const Job& job);

}  // namespace tp

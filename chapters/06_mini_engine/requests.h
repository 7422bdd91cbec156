// What the command line of the mini engine asks for, checked before any work starts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/engine/generate.h"
#include "common/model/config.h"
#include "common/model/generation_config.h"
#include "common/model/tokenizer.h"

namespace tp {

// The chapter's own options, as they were typed.
struct EngineOptions {
  std::string model;  // folder; empty: the bundled one
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_ids;  // "1,2,3"
  std::int64_t max_tokens = 64;
  std::optional<std::int64_t> max_model_len;
  bool ignore_eos = false;
  std::optional<double> temperature, top_p;
  std::optional<std::int64_t> top_k;
  std::string sampling;  // "model", or empty
  std::string compare = "tokens";
};

// The options with their flags and help texts, for ChapterSpec.
std::vector<ExtraOption> engine_flags(EngineOptions& engine);

// A model folder, read but for its weights, and what is to be done with it.
struct Job {
  std::filesystem::path folder;
  ModelConfig config;
  Tokenizer tokenizer;
  std::vector<Request> requests;
  std::int64_t max_context = 0;  // tokens in the KV cache
  std::optional<DType> store_as;

  // Errors: tp::Error (input) with all problems at once.
  static Job prepare(const Options& options, const EngineOptions& engine);
};

// The folder of the bundled model: models/austen-5m, in the folder of the program or one above it.
// Errors: tp::Error (input) if it is in none of them.
std::filesystem::path bundled_model();

}  // namespace tp

// Models and cards to plan with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/plan/layout.h"

namespace tp {

inline ModelConfig shape(const std::string& name) {
  return ModelConfig::for_plan(
      std::filesystem::path(TP_SOURCE_DIR) / "models/shapes" / name / "config.json", {});
}

// The sizes that decide which tp is usable; the others do not matter.
inline ModelConfig sized(std::int64_t heads,
                         std::int64_t kv_heads,
                         std::int64_t intermediate,
                         std::int64_t vocab,
                         const std::vector<ModelConfig::Key>& more = {}) {
  std::vector<ModelConfig::Key> keys{{"model_type", std::string("llama")},
                                     {"hidden_size", heads * 4},
                                     {"num_hidden_layers", std::int64_t{4}},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", kv_heads},
                                     {"intermediate_size", intermediate},
                                     {"vocab_size", vocab}};
  keys.insert(keys.end(), more.begin(), more.end());
  return ModelConfig::for_plan({}, keys);
}

inline ModelConfig qwen3_4b() {
  return ModelConfig::for_plan({}, {{"model_type", std::string("qwen3")},
                                    {"hidden_size", std::int64_t{2560}},
                                    {"intermediate_size", std::int64_t{9728}},
                                    {"num_hidden_layers", std::int64_t{36}},
                                    {"num_attention_heads", std::int64_t{32}},
                                    {"num_key_value_heads", std::int64_t{8}},
                                    {"head_dim", std::int64_t{128}},
                                    {"vocab_size", std::int64_t{151936}},
                                    {"tie_word_embeddings", true}});
}

inline std::int64_t mib(std::int64_t count) {
  return count << 20;
}

// 80 GiB cards, 0.90 of them, 800 MiB and 1 GiB of overhead; 16 requests of 8192 tokens.
inline PlanInput plan_of(const ModelConfig& config) {
  PlanInput input;
  input.config = config;
  input.card_bytes = std::int64_t{80} << 30;
  input.overhead = {mib(500), mib(300), mib(1024)};
  input.max_model_len = 8192;
  input.concurrency = 16;
  return input;
}

}  // namespace tp

#include "common/model/config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/model/generation_config.h"
#include "common/model/json_object.h"

namespace tp {

namespace {

// What a family of models is when its config.json leaves a key out.
struct Family {
  std::string_view model_type;
  std::int64_t max_position_embeddings;
  double rms_norm_eps;
  double rope_theta;
};

// The families that the decoder can run.
// Source: the configuration classes of Hugging Face transformers.
constexpr std::array kFamilies{
    Family{"llama", 2048, 1e-6, 10000},
};

// With these limits and 4 bytes a number, the layers have at most 7 * 2^40 * 2^12 * 4 < 2^57 bytes
// of matrices, the embedding and lm_head 2 * 2^24 * 2^20 * 4 = 2^47, and the KV cache 2 * 2^20 *
// 2^12 * 4 = 2^35 a token, 2^59 for 2^24 tokens.
constexpr Limits<std::int64_t> kWidth{1, 1 << 20};
constexpr Limits<std::int64_t> kLayers{1, 1 << 12};
constexpr Limits<std::int64_t> kVocab{1, 1 << 24};
constexpr Limits<std::int64_t> kPositions{1, 1 << 24};

const Family& read_family(const JsonObject& keys) {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  const std::string name = keys.required_choice("model_type", names);
  const auto found = std::find(names.begin(), names.end(), name);
  // An unknown family is a problem already. The other keys are checked nevertheless.
  return found == names.end() ? kFamilies[0]
                              : kFamilies[static_cast<std::size_t>(found - names.begin())];
}

void read_heads(const JsonObject& keys, ModelConfig& config) {
  config.num_attention_heads = keys.required_whole("num_attention_heads", kWidth);
  config.num_key_value_heads =
      keys.whole("num_key_value_heads", kWidth).value_or(config.num_attention_heads);
  config.head_dim = keys.whole("head_dim", kWidth).value_or(0);

  const std::int64_t heads = config.num_attention_heads;
  if (heads == 0) return;  // a problem already, and nothing can be compared with it
  if (heads % config.num_key_value_heads != 0)
    keys.refuse("num_key_value_heads", fmt::format("a divisor of num_attention_heads = {}", heads));

  const bool derived = !keys.has("head_dim") && config.hidden_size > 0;
  const std::string origin =
      fmt::format("hidden_size = {} / num_attention_heads = {}", config.hidden_size, heads);
  if (derived && config.hidden_size % heads != 0)
    return keys.refuse("head_dim", fmt::format("given, because {} is no whole number", origin));
  if (derived) config.head_dim = config.hidden_size / heads;

  if (config.head_dim % 2 != 0)
    keys.refuse("head_dim",
                fmt::format("even, because RoPE turns pairs of numbers{}",
                            derived ? fmt::format(" ({} is {})", origin, config.head_dim) : ""));
  if (config.q_size() > kWidth.max)
    keys.refuse("head_dim",
                fmt::format("at most {} with num_attention_heads = {}", kWidth.max / heads, heads));
}

void refuse_partial_rope(const JsonObject& keys) {
  if (keys.number("partial_rotary_factor", {0, 1}).value_or(1) != 1)
    keys.refuse("partial_rotary_factor", "1: RoPE turns whole heads");
}

void refuse_scaled_rope(const JsonObject& rope) {
  const std::vector<std::string_view> supported{"default"};
  rope.choice("rope_type", supported);
  rope.choice("type", supported);  // how older files call it
  if (rope.has("rope_type") || rope.has("type")) return;
  const std::vector<std::string> keys = rope.keys();
  const bool scales = std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
    return key != "rope_theta" && key != "partial_rotary_factor";
  });
  if (scales) rope.required_choice("rope_type", supported);
}

// RoPE's keys stand at the top level in older files (rope_theta, rope_scaling), in rope_parameters
// in newer ones.
void read_rope(const JsonObject& keys, const Family& family, ModelConfig& config) {
  constexpr Limits<double> kTheta{1, 1e30};
  std::optional<double> theta = keys.number("rope_theta", kTheta);
  refuse_partial_rope(keys);
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    const std::optional<JsonObject> block = keys.object(name);
    if (!block) continue;
    refuse_scaled_rope(*block);
    refuse_partial_rope(*block);
    const std::optional<double> own = block->number("rope_theta", kTheta);
    if (own && theta && *own != *theta)
      block->refuse("rope_theta",
                    fmt::format("{}, as the other place that has this key says", *theta));
    if (own) theta = own;
  }
  config.rope_theta = theta.value_or(family.rope_theta);
}

// The ids that end a text: those of generation_config.json, or else those of config.json.
void read_token_ids(const JsonObject& keys,
                    const std::filesystem::path& folder,
                    Problems& problems,
                    ModelConfig& config) {
  const Limits<std::int64_t> ids{0, (config.vocab_size > 0 ? config.vocab_size : kVocab.max) - 1};
  if (const auto id = keys.whole("bos_token_id", ids))
    config.bos_token_id = static_cast<std::int32_t>(*id);
  for (const std::int64_t id : keys.whole_list("eos_token_id", ids))
    config.eos_token_ids.push_back(static_cast<std::int32_t>(id));

  const GenerationConfig generation = GenerationConfig::load(folder, problems);
  for (const std::int32_t id : generation.eos_token_ids)
    if (id > ids.max)
      problems.add(fmt::format("{}: eos_token_id {}: must be below vocab_size = {}",
                               (folder / "generation_config.json").string(), id, ids.max + 1));
  if (!generation.eos_token_ids.empty()) config.eos_token_ids = generation.eos_token_ids;
}

// "torch_dtype" in older files, "dtype" in newer ones.
std::optional<DType> read_dtype(const JsonObject& keys) {
  const std::vector<std::string_view> names{"float32", "bfloat16", "float16"};
  const auto older = keys.choice("torch_dtype", names);
  const auto newer = keys.choice("dtype", names);
  if (older && newer && *older != *newer)
    keys.refuse("dtype", fmt::format("\"{}\" like torch_dtype", *older));
  const auto name = newer ? newer : older;
  if (!name) return std::nullopt;
  return *name == "float32" ? DType::f32 : *name == "bfloat16" ? DType::bf16 : DType::f16;
}

}  // namespace

ModelConfig ModelConfig::load(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const nlohmann::json json = read_json(file);
  Problems problems;
  const JsonObject keys(json, file.string(), problems);
  const Family& family = read_family(keys);

  ModelConfig config;
  config.model_type = family.model_type;
  config.hidden_size = keys.required_whole("hidden_size", kWidth);
  config.intermediate_size = keys.required_whole("intermediate_size", kWidth);
  config.num_hidden_layers = keys.required_whole("num_hidden_layers", kLayers);
  config.vocab_size = keys.required_whole("vocab_size", kVocab);
  read_heads(keys, config);
  config.max_position_embeddings =
      keys.whole("max_position_embeddings", kPositions).value_or(family.max_position_embeddings);
  config.rms_norm_eps = keys.number("rms_norm_eps", {0, 1}).value_or(family.rms_norm_eps);
  read_rope(keys, family, config);
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings").value_or(false);
  config.attention_bias = keys.boolean("attention_bias").value_or(false);
  config.mlp_bias = keys.boolean("mlp_bias").value_or(false);
  config.hidden_act = keys.choice("hidden_act", {"silu"}).value_or("silu");
  config.torch_dtype = read_dtype(keys);
  read_token_ids(keys, folder, problems, config);
  if (keys.has("quantization_config"))
    keys.refuse("quantization_config", "absent: weights must be float32, bfloat16 or float16");
  problems.throw_if_any();
  return config;
}

}  // namespace tp

#include "common/model/config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/model/generation_config.h"
#include "common/model/json_object.h"
#include "common/model/rope_keys.h"

namespace tp {

namespace {

enum class AttentionBias : std::uint8_t {
  none,
  qkv,     // of q, k and v, whatever attention_bias says; o_proj has none
  by_key,  // of q, k, v and o_proj, if attention_bias is true
};

enum class Windows : std::uint8_t {
  none,         // every layer attends to all tokens
  every_layer,  // sliding_window, unless it is null
  by_switch,  // sliding_window, if use_sliding_window is true, in the layers that layer_types names
              // or, without it, from layer max_window_layers on
};

// What sets a family of models apart. In everything else, defaults included, they are alike.
struct Family {
  std::string_view model_type;
  std::int64_t max_position_embeddings;  // if config.json leaves it out
  AttentionBias attention_bias;
  bool has_mlp_bias_key;
  bool qk_norm;
  Windows windows;
};

// The families that the decoder can run. SmolLM2 is a llama.
// Source: the configuration and model classes of Hugging Face transformers.
constexpr std::array kFamilies{
    Family{"llama", 2048, AttentionBias::by_key, true, false, Windows::none},
    Family{"mistral", 131072, AttentionBias::none, false, false, Windows::every_layer},
    Family{"qwen2", 32768, AttentionBias::qkv, false, false, Windows::by_switch},
    Family{"qwen3", 32768, AttentionBias::by_key, false, true, Windows::by_switch},
};

// With these limits and 4 bytes a number, the layers have at most 7 * 2^40 * 2^12 * 4 < 2^57 bytes
// of matrices, the embedding and lm_head 2 * 2^24 * 2^20 * 4 = 2^47, and the KV cache 2 * 2^20 *
// 2^12 * 4 = 2^35 a token, 2^59 for 2^24 tokens.
constexpr Limits<std::int64_t> kWidth{1, 1 << 20};
constexpr Limits<std::int64_t> kLayers{1, 1 << 12};
constexpr Limits<std::int64_t> kVocab{1, 1 << 24};
constexpr Limits<std::int64_t> kPositions{1, 1 << 24};

// Nothing if the family is unknown, which is a problem already.
const Family* read_family(const JsonObject& keys) {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  const std::string name = keys.required_choice("model_type", names);
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr
                              : &kFamilies[static_cast<std::size_t>(found - names.begin())];
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

void read_biases(const JsonObject& keys, const Family& family, ModelConfig& config) {
  const bool asked = keys.boolean("attention_bias").value_or(false);
  config.o_bias = asked && family.attention_bias == AttentionBias::by_key;
  config.qkv_bias = config.o_bias || family.attention_bias == AttentionBias::qkv;
  config.mlp_bias = keys.boolean("mlp_bias").value_or(false);
  const std::string absent = fmt::format("false or absent: {} models have none", family.model_type);
  if (asked && family.attention_bias == AttentionBias::none) keys.refuse("attention_bias", absent);
  if (config.mlp_bias && !family.has_mlp_bias_key) keys.refuse("mlp_bias", absent);
}

// What layer_types says of each layer. In a family where it does not decide, it may only say what
// the layers are anyway.
void read_layer_types(const JsonObject& keys,
                      bool it_decides,
                      std::int64_t window,
                      std::vector<std::int64_t>& windows) {
  const auto types = keys.text_list("layer_types");
  if (!types || windows.empty()) return;
  if (types->size() != windows.size())
    return keys.refuse("layer_types",
                       fmt::format("a list of num_hidden_layers = {}", windows.size()));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const std::int64_t if_sliding = it_decides ? window : windows[i];
    std::vector<std::string_view> right;
    if (it_decides || if_sliding == kNoWindow) right.emplace_back("full_attention");
    if (if_sliding != kNoWindow) right.emplace_back("sliding_attention");
    if (std::find(right.begin(), right.end(), (*types)[i]) == right.end())
      return keys.refuse("layer_types", fmt::format("\"{}\" for layer {}, not \"{}\"",
                                                    fmt::join(right, "\" or \""), i, (*types)[i]));
    windows[i] = (*types)[i] == "sliding_attention" ? if_sliding : kNoWindow;
  }
}

void read_windows(const JsonObject& keys, const Family& family, ModelConfig& config) {
  constexpr std::int64_t kUsualWindow = 4096, kUsualFirstLayer = 28;
  const std::optional<std::int64_t> given = keys.whole("sliding_window", kPositions);
  // A null means that there is none; only a missing key has the default.
  const bool missing = !keys.has("sliding_window") && !keys.is_null("sliding_window");
  std::int64_t window = given.value_or(missing ? kUsualWindow : kNoWindow);
  std::int64_t first_layer = 0;
  if (family.windows == Windows::none) {
    if (given && *given < config.max_position_embeddings)
      keys.refuse("sliding_window",
                  fmt::format("null or absent: {} models attend to all tokens", family.model_type));
    window = kNoWindow;
  }
  const bool by_switch = family.windows == Windows::by_switch;
  if (by_switch) {
    first_layer = keys.whole("max_window_layers", {0, kLayers.max}).value_or(kUsualFirstLayer);
    if (!keys.boolean("use_sliding_window").value_or(false)) window = kNoWindow;
  }
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    config.sliding_windows.push_back(i < first_layer ? kNoWindow : window);
  read_layer_types(keys, by_switch, window, config.sliding_windows);
}

constexpr std::array kQuantizationKeys{"quantization_config", "compression_config", "quantization"};

void refuse_quantized(const JsonObject& keys) {
  for (const char* key : kQuantizationKeys)
    if (keys.has(key)) keys.refuse(key, "absent: weights must be float32, bfloat16 or float16");
}

void refuse_experts(const JsonObject& keys) {
  for (const char* key :
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"})
    if (keys.has(key)) keys.refuse(key, "absent: mixtures of experts are not known here");
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

// All that a config.json says by itself.
ModelConfig read_config(const JsonObject& keys) {
  const Family* known = read_family(keys);
  // The other keys are checked nevertheless, as those of the first family.
  const Family& family = known == nullptr ? kFamilies[0] : *known;

  ModelConfig config;
  config.model_type = family.model_type;
  config.hidden_size = keys.required_whole("hidden_size", kWidth);
  config.intermediate_size = keys.required_whole("intermediate_size", kWidth);
  config.num_hidden_layers = keys.required_whole("num_hidden_layers", kLayers);
  config.vocab_size = keys.required_whole("vocab_size", kVocab);
  read_heads(keys, config);
  config.max_position_embeddings =
      keys.whole("max_position_embeddings", kPositions).value_or(family.max_position_embeddings);
  config.rms_norm_eps = keys.number("rms_norm_eps", {0, 1}).value_or(1e-6);
  config.rope = read_rope(keys, config.max_position_embeddings);
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings").value_or(false);
  config.qk_norm = family.qk_norm;
  read_biases(keys, family, config);
  if (known != nullptr) read_windows(keys, family, config);
  if (keys.boolean("rope_interleaved").value_or(false))
    keys.refuse("rope_interleaved", "false or absent: RoPE's pairs are (i, i + head_dim / 2)");
  config.hidden_act = keys.choice("hidden_act", {"silu"}).value_or("silu");
  config.quantized = std::any_of(kQuantizationKeys.begin(), kQuantizationKeys.end(),
                                 [&](const char* key) { return keys.has(key); });
  config.torch_dtype = read_dtype(keys);
  refuse_experts(keys);
  return config;
}

}  // namespace

ModelConfig ModelConfig::load(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const nlohmann::json json = read_json(file);
  Problems problems;
  const JsonObject keys(json, file.string(), problems);
  ModelConfig config = read_config(keys);
  read_token_ids(keys, folder, problems, config);
  refuse_quantized(keys);
  problems.throw_if_any();
  return config;
}

ModelConfig ModelConfig::for_plan(const std::optional<std::filesystem::path>& file,
                                  const std::vector<Key>& given) {
  std::string name = file ? file->string() : "";
  nlohmann::json json = file ? read_json(*file) : nlohmann::json::object();
  if (!given.empty()) name += file ? " and the command line" : "the command line";
  Problems problems;
  if (json.is_object())
    for (const auto& [key, value] : given)
      std::visit([&, &key = key](const auto& v) { json[key] = v; }, value);
  ModelConfig config = read_config(JsonObject(json, name, problems));
  problems.throw_if_any();
  return config;
}

}  // namespace tp

#include "common/model/config.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/model/generation_config.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace tp {
namespace {

// The keys of a config.json with their values as JSON text; "" leaves a key out.
using Keys = std::map<std::string, std::string>;

// All keys that have no default; sizes pairwise different.
const Keys kSmallest{
    {"model_type", "\"llama\""}, {"hidden_size", "48"},        {"intermediate_size", "80"},
    {"num_hidden_layers", "3"},  {"num_attention_heads", "8"}, {"vocab_size", "100"},
};

std::string json_of(const Keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys)
    if (!value.empty()) text += (text.empty() ? "" : ",") + ("\"" + key + "\":" + value);
  return "{" + text + "}";
}

Keys with(const Keys& changes) {
  Keys keys = changes;
  keys.insert(kSmallest.begin(), kSmallest.end());  // keeps the keys that are there already
  return keys;
}

ModelConfig load(const Keys& changes, const std::string& generation = "") {
  const TempFolder folder;
  folder.write("config.json", json_of(with(changes)));
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return ModelConfig::load(folder.path());
}

template <class Load>
std::string refusal_of(const Load& load_it) {
  try {
    load_it();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "not refused";
}

// The message that refuses the smallest config with these changes.
std::string refusal(const Keys& changes, const std::string& generation = "") {
  return refusal_of([&] { load(changes, generation); });
}

GenerationConfig load_generation(const std::string& text) {
  const TempFolder folder;
  folder.write("generation_config.json", text);
  return GenerationConfig::load(folder.path());
}

std::string generation_refusal(const std::string& text) {
  return refusal_of([&] { load_generation(text); });
}

using Ids = std::vector<std::int32_t>;

TEST_CASE("config - the bundled model") {
  const auto folder = std::filesystem::path(TP_SOURCE_DIR) / "models" / "austen-5m";
  const ModelConfig config = ModelConfig::load(folder);
  CHECK(config.model_type == "llama");
  CHECK(config.hidden_size == 256);
  CHECK(config.intermediate_size == 704);
  CHECK(config.num_hidden_layers == 6);
  CHECK(config.num_attention_heads == 8);
  CHECK(config.num_key_value_heads == 2);
  CHECK(config.head_dim == 32);
  CHECK(config.vocab_size == 4353);
  CHECK(config.max_position_embeddings == 512);
  CHECK(config.rms_norm_eps == 1e-5);
  CHECK(config.rope.rope_theta == 10000);
  CHECK(config.tie_word_embeddings);
  CHECK_FALSE(config.qkv_bias);
  CHECK_FALSE(config.o_bias);
  CHECK_FALSE(config.mlp_bias);
  CHECK_FALSE(config.qk_norm);
  CHECK(config.sliding_windows == std::vector<std::int64_t>(6, kNoWindow));
  CHECK(config.hidden_act == "silu");
  CHECK(config.torch_dtype == DType::bf16);
  CHECK(config.bos_token_id == 0);
  CHECK(config.eos_token_ids == Ids{0});

  const GenerationConfig generation = GenerationConfig::load(folder);
  CHECK(generation.do_sample);
  CHECK(generation.temperature == 0.7);
  CHECK(generation.top_p == 0.9);
  CHECK(generation.top_k == 0);
}

TEST_CASE("config - keys that are missing or null have the defaults of the family") {
  const Keys nulls{{"num_key_value_heads", "null"}, {"head_dim", "null"},
                   {"rope_theta", "null"},          {"rope_scaling", "null"},
                   {"rope_parameters", "null"},     {"tie_word_embeddings", "null"},
                   {"torch_dtype", "null"},         {"quantization_config", "null"},
                   {"eos_token_id", "null"},        {"hidden_act", "null"}};
  for (const Keys& changes : {Keys{}, nulls}) {
    const ModelConfig config = load(changes);
    CHECK(config.num_key_value_heads == 8);
    CHECK(config.head_dim == 6);
    CHECK(config.max_position_embeddings == 2048);
    CHECK(config.rms_norm_eps == 1e-6);
    CHECK(config.rope.rope_theta == 10000);
    CHECK_FALSE(config.tie_word_embeddings);
    CHECK_FALSE(config.qkv_bias);
    CHECK_FALSE(config.o_bias);
    CHECK_FALSE(config.mlp_bias);
    CHECK(config.rope == RopeConfig());
    CHECK(config.hidden_act == "silu");
    CHECK_FALSE(config.torch_dtype.has_value());
    CHECK_FALSE(config.bos_token_id.has_value());
    CHECK(config.eos_token_ids.empty());
  }
}

TEST_CASE("config - head_dim is its own size") {
  const ModelConfig config = load({{"hidden_size", "2560"},
                                   {"num_attention_heads", "32"},
                                   {"num_key_value_heads", "8"},
                                   {"head_dim", "128"}});
  CHECK(config.head_dim == 128);  // hidden_size / num_attention_heads is 80
  CHECK(config.q_size() == 4096);
  CHECK(config.kv_size() == 1024);
}

TEST_CASE("config - head_dim must be known and even") {
  CHECK_THAT(refusal({{"hidden_size", "50"}}), ContainsSubstring("head_dim is missing") &&
                                                   ContainsSubstring("hidden_size = 50") &&
                                                   ContainsSubstring("num_attention_heads = 8"));
  CHECK(load({{"hidden_size", "50"}, {"head_dim", "6"}}).head_dim == 6);
  CHECK_THAT(refusal({{"head_dim", "7"}}), ContainsSubstring("head_dim = 7: must be even"));
  CHECK_THAT(refusal({{"hidden_size", "56"}}), ContainsSubstring("even") &&
                                                   ContainsSubstring("hidden_size = 56") &&
                                                   ContainsSubstring("is 7"));
}

TEST_CASE("config - query heads must be a multiple of the KV heads") {
  for (const char* kv_heads : {"3", "5", "16"})
    CHECK_THAT(refusal({{"num_key_value_heads", kv_heads}}),
               ContainsSubstring("num_key_value_heads = " + std::string(kv_heads)) &&
                   ContainsSubstring("num_attention_heads = 8"));
  for (const char* kv_heads : {"1", "2", "4", "8"})
    CHECK(std::to_string(load({{"num_key_value_heads", kv_heads}}).num_key_value_heads) ==
          kv_heads);
}

TEST_CASE("config - sizes must be whole numbers that make sense") {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"})
    for (const char* value :
         {"0", "-4", "16.0", "\"16\"", "true", "[16]", "{}", "1e3", "100000000",
          "9223372036854775807", "18446744073709551615", "-9223372036854775808", "1e300"})
      CHECK_THAT(refusal({{key, value}}),
                 ContainsSubstring("config.json: " + std::string(key) + " = ") &&
                     ContainsSubstring(": must be a whole number from 1 to "));
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                          "num_attention_heads"})
    for (const char* nothing : {"", "null"})
      CHECK_THAT(refusal({{key, nothing}}), ContainsSubstring(std::string(key) + " is missing"));
  // Each may be large, but not all heads together.
  CHECK_THAT(refusal({{"num_attention_heads", "65536"}, {"head_dim", "65536"}}),
             ContainsSubstring("head_dim = 65536: must be at most 16"));
}

TEST_CASE("config - switches and numbers of the wrong type or size are refused") {
  for (const char* key : {"tie_word_embeddings", "attention_bias", "mlp_bias"}) {
    for (const char* value : {"0", "1", "\"true\"", "[]"})
      CHECK_THAT(refusal({{key, value}}),
                 ContainsSubstring(std::string(key) + " = " + value + ": must be true or false"));
  }
  CHECK(load({{"tie_word_embeddings", "true"}}).tie_word_embeddings);
  CHECK(load({{"attention_bias", "true"}}).qkv_bias);
  CHECK(load({{"mlp_bias", "true"}}).mlp_bias);
  for (const char* value : {"-1e-6", "1.5", "\"1e-6\"", "true"})
    CHECK_THAT(refusal({{"rms_norm_eps", value}}), ContainsSubstring("rms_norm_eps = "));
  for (const char* value : {"0", "-10000", "0.5", "1e31", "\"10000\""})
    CHECK_THAT(refusal({{"rope_theta", value}}), ContainsSubstring("rope_theta = "));
  CHECK_THAT(refusal({{"rope_theta", "1e999"}}), ContainsSubstring("a number that is too large"));
}

TEST_CASE("config - what the decoder cannot compute is refused by name") {
  CHECK_THAT(refusal({{"model_type", "\"gpt2\""}}),
             ContainsSubstring("model_type = \"gpt2\": must be one of \"llama\", \"mistral\", "
                               "\"qwen2\", \"qwen3\""));
  CHECK_THAT(refusal({{"model_type", ""}}),
             ContainsSubstring("model_type is missing: must be one of \"llama\""));
  CHECK_THAT(refusal({{"model_type", "3"}}), ContainsSubstring("model_type = 3"));
  CHECK_THAT(refusal({{"hidden_act", "\"gelu\""}}),
             ContainsSubstring("hidden_act = \"gelu\": must be \"silu\""));
  CHECK_THAT(refusal({{"quantization_config", R"({"quant_method":"gptq","bits":4})"}}),
             ContainsSubstring("quantization_config = ") && ContainsSubstring("gptq"));
  CHECK_THAT(refusal({{"quantization", R"({"group_size":64,"bits":4})"}}),
             ContainsSubstring("quantization = "));
  CHECK_THAT(refusal({{"compression_config", R"({"format":"pack-quantized"})"}}),
             ContainsSubstring("compression_config = "));
  CHECK_THAT(refusal({{"partial_rotary_factor", "0.5"}}),
             ContainsSubstring("partial_rotary_factor = 0.5: must be 1"));
}

TEST_CASE("config - rope_theta is read from both of its places") {
  CHECK(load({{"rope_theta", "500000"}}).rope.rope_theta == 500000);
  CHECK(load({{"rope_theta", "1000000.0"}}).rope.rope_theta == 1000000);
  CHECK(load({{"rope_parameters", R"({"rope_type":"default","rope_theta":500000.0})"}})
            .rope.rope_theta == 500000);
  CHECK(load({{"rope_parameters", R"({"rope_theta":500000})"}}).rope.rope_theta == 500000);
  CHECK(
      load({{"rope_theta", "20000"}, {"rope_scaling", R"({"type":"default"})"}}).rope.rope_theta ==
      20000);
  CHECK(load({{"rope_theta", "20000"}, {"rope_parameters", R"({"rope_theta":20000.0})"}})
            .rope.rope_theta == 20000);
  CHECK_THAT(refusal({{"rope_theta", "20000"}, {"rope_parameters", R"({"rope_theta":10000})"}}),
             ContainsSubstring("rope_parameters.rope_theta = 10000: must be 20000"));
  CHECK_THAT(refusal({{"rope_parameters", R"({"rope_theta":"10000"})"}}),
             ContainsSubstring("rope_parameters.rope_theta = \"10000\""));
}

TEST_CASE("config - RoPE of an unknown type is refused and never run unscaled") {
  for (const std::string block : {"rope_scaling", "rope_parameters"})
    for (const std::string key : {"rope_type", "type"})
      for (const std::string type : {"longrope", "dynamic", "mrope", "su", "Default", ""})
        CHECK_THAT(refusal({{block, "{\"" + key + "\":\"" + type + "\",\"factor\":8.0}"}}),
                   ContainsSubstring(block + "." + key + " = \"" + type +
                                     "\": must be one of \"default\", \"linear\", \"llama3\", "
                                     "\"yarn\""));
  CHECK_THAT(refusal({{"rope_scaling", R"({"type":"default","rope_type":"longrope"})"}}),
             ContainsSubstring("rope_scaling.rope_type = \"longrope\""));
  CHECK_THAT(refusal({{"rope_scaling", R"({"type":"linear","rope_type":"yarn","factor":2})"}}),
             ContainsSubstring("rope_scaling.type = \"linear\": must be \"yarn\" like rope_type"));
  CHECK_THAT(refusal({{"rope_scaling", R"({"factor":8.0})"}}),
             ContainsSubstring("rope_scaling.rope_type is missing"));
  CHECK_THAT(refusal({{"rope_scaling", R"({"rope_type":["default"]})"}}),
             ContainsSubstring("rope_scaling.rope_type = [\"default\"]"));
  for (const std::string value : {"8.0", "\"yarn\"", "[]", "false"})
    CHECK_THAT(refusal({{"rope_scaling", value}}),
               ContainsSubstring("rope_scaling = " + value + ": must be a JSON object"));
  CHECK(load({{"rope_scaling", "{}"}}).rope.rope_theta == 10000);
}

TEST_CASE("config - llama3 RoPE in its older and its newer spelling") {
  const RopeConfig wanted{.type = RopeType::llama3,
                          .rope_theta = 500000,
                          .factor = 8,
                          .original_max_position_embeddings = 8192,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4};
  const std::string numbers = R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)";
  const std::string length = R"(,"original_max_position_embeddings":8192)";
  for (const std::string type : {R"({"rope_type":"llama3",)", R"({"type":"llama3",)",
                                 R"({"rope_type":"llama3","type":"llama3",)"}) {
    const std::string block = type + numbers + length + "}";
    const std::string whole = type + numbers + length + R"(,"rope_theta":500000.0})";
    CHECK(load({{"rope_theta", "500000"}, {"rope_scaling", block}}).rope == wanted);
    CHECK(load({{"rope_parameters", whole}}).rope == wanted);
    CHECK(load({{"rope_theta", "500000"}, {"rope_parameters", whole}}).rope == wanted);
    CHECK(load({{"rope_scaling", block}, {"rope_parameters", whole}}).rope == wanted);
    // Some files say outside of the block how long the first texts were.
    CHECK(load({{"rope_theta", "500000"},
                {"original_max_position_embeddings", "8192"},
                {"rope_scaling", type + numbers + "}"}})
              .rope == wanted);
    CHECK_THAT(refusal({{"rope_scaling", type + numbers + "}"}}),
               ContainsSubstring("rope_scaling.original_max_position_embeddings is missing"));
    CHECK_THAT(
        refusal({{"original_max_position_embeddings", "4096"}, {"rope_scaling", block}}),
        ContainsSubstring("rope_scaling.original_max_position_embeddings = 8192: must be 4096"));
    CHECK_THAT(
        refusal({{"rope_scaling", R"({"type":"linear","factor":2})"}, {"rope_parameters", whole}}),
        ContainsSubstring("rope_parameters = ") &&
            ContainsSubstring("must be the same as rope_scaling, or absent"));
  }
}

TEST_CASE("config - linear RoPE") {
  const RopeConfig rope = load({{"rope_scaling", R"({"type":"linear","factor":4.0})"}}).rope;
  CHECK(rope == RopeConfig{.type = RopeType::linear, .factor = 4});
}

TEST_CASE("config - yarn RoPE and its defaults") {
  const auto yarn = [](const std::string& more, const std::string& theta = "1000000") {
    return load({{"rope_theta", theta},
                 {"max_position_embeddings", "131072"},
                 {"rope_scaling", R"({"rope_type":"yarn","factor":4.0)" + more + "}"}})
        .rope;
  };
  RopeConfig wanted{.type = RopeType::yarn,
                    .rope_theta = 1e6,
                    .factor = 4,
                    .original_max_position_embeddings = 32768,
                    .attention_factor = yarn_attention_factor(4)};
  const std::string length = R"(,"original_max_position_embeddings":32768)";
  CHECK(yarn(length) == wanted);
  CHECK(yarn(length + R"(,"beta_fast":null,"mscale":null,"attention_factor":null)") == wanted);
  CHECK(yarn(length + R"(,"beta_fast":32,"beta_slow":1,"truncate":true)") == wanted);
  CHECK(yarn(length + R"(,"mscale":0.7)") == wanted);  // without mscale_all_dim it does nothing
  CHECK(yarn("").original_max_position_embeddings == 131072);
  CHECK_FALSE(yarn(R"(,"truncate":false)").truncate);
  CHECK_FALSE(yarn(R"(,"truncate":null)").truncate);
  CHECK(yarn(R"(,"attention_factor":0.5)").attention_factor == 0.5);
  CHECK(yarn(R"(,"attention_factor":0.5,"mscale":2,"mscale_all_dim":3)").attention_factor == 0.5);
  CHECK(yarn(R"(,"mscale":2.0,"mscale_all_dim":3.0)").attention_factor ==
        yarn_attention_factor(4, 2) / yarn_attention_factor(4, 3));
  CHECK(yarn(R"(,"beta_fast":8,"beta_slow":0.5)").beta_fast == 8);
  CHECK(yarn(R"(,"beta_fast":8,"beta_slow":0.5)").beta_slow == 0.5);
  CHECK_THROWS_WITH(yarn("", "1"), ContainsSubstring("rope_theta = 1: must be above 1"));
}

TEST_CASE("config - parameters of scaled RoPE that make no sense are refused by name") {
  const auto refused = [](const std::string& block, const std::string& key) {
    CHECK_THAT(refusal({{"rope_scaling", block}}), ContainsSubstring("rope_scaling." + key));
  };
  for (const char* type : {"linear", "llama3", "yarn"}) {
    const std::string start = R"({"rope_type":")" + std::string(type) + "\"";
    refused(start + "}", "factor is missing: must be a number from 1 to 1");
    for (const char* factor : {"0", "0.5", "-4", "\"4\"", "true", "[4]"})
      refused(start + R"(,"factor":)" + factor + "}", "factor = ");
    // Keys of another type, or of a model that means something else by its RoPE.
    for (const char* key : {"short_factor", "mrope_section", "llama_4_scaling_beta", "finetuned"})
      refused(start + R"(,"factor":4,")" + key + R"(":1})",
              std::string(key) + " = 1: must be absent");
  }
  refused(R"({"rope_type":"linear","factor":4,"attention_factor":1.0})", "attention_factor = 1.0");
  refused(R"({"rope_type":"default","factor":4})", "factor = 4: must be absent");
  refused(R"({"rope_type":"default","partial_rotary_factor":0.5})", "partial_rotary_factor = 0.5");

  const std::string llama3 = R"({"rope_type":"llama3","factor":8,)";
  refused(llama3 + R"("high_freq_factor":4})", "low_freq_factor is missing");
  refused(llama3 + R"("low_freq_factor":1})", "high_freq_factor is missing");
  refused(llama3 + R"("low_freq_factor":4,"high_freq_factor":4})",
          "high_freq_factor = 4: must be above low_freq_factor, 4");
  refused(llama3 + R"("low_freq_factor":0,"high_freq_factor":4})", "low_freq_factor = 0");
  refused(llama3 + R"("original_max_position_embeddings":8192.5})",
          "original_max_position_embeddings = 8192.5");

  const std::string yarn = R"({"rope_type":"yarn","factor":4,)";
  refused(yarn + R"("beta_fast":1,"beta_slow":2})", "beta_fast = 1: must be at least beta_slow, 2");
  for (const char* key : {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"})
    for (const char* value : {"-1", "\"1\"", "true"})
      refused(yarn + "\"" + key + "\":" + value + "}", std::string(key) + " = " + value);
  refused(yarn + R"("truncate":1})", "truncate = 1: must be true or false");
  refused(yarn + R"("original_max_position_embeddings":0})",
          "original_max_position_embeddings = 0");
}

TEST_CASE("config - defaults of each family") {
  const auto family = [](const std::string& name) {
    return load({{"model_type", '"' + name + '"'}});
  };
  for (const std::string name : {"llama", "mistral", "qwen2", "qwen3"}) {
    const ModelConfig config = family(name);
    INFO(name);
    CHECK(config.model_type == name);
    CHECK(config.max_position_embeddings ==
          std::map<std::string, std::int64_t>{
              {"llama", 2048}, {"mistral", 131072}, {"qwen2", 32768}, {"qwen3", 32768}}[name]);
    CHECK(config.num_key_value_heads == 8);
    CHECK(config.head_dim == 6);
    CHECK(config.rms_norm_eps == 1e-6);
    CHECK(config.rope == RopeConfig());
    CHECK_FALSE(config.tie_word_embeddings);
    CHECK(config.qkv_bias == (name == "qwen2"));
    CHECK_FALSE(config.o_bias);
    CHECK_FALSE(config.mlp_bias);
    CHECK(config.qk_norm == (name == "qwen3"));
    CHECK(config.sliding_windows ==
          std::vector<std::int64_t>(3, name == "mistral" ? 4096 : kNoWindow));
  }
}

TEST_CASE("config - switches that a family does not have are refused") {
  const auto refused = [](const std::string& family, const std::string& key) {
    CHECK_THAT(refusal({{"model_type", '"' + family + '"'}, {key, "true"}}),
               ContainsSubstring(key + " = true: must be false or absent: " + family));
    load({{"model_type", '"' + family + '"'}, {key, "false"}});
  };
  refused("mistral", "attention_bias");
  for (const char* family : {"mistral", "qwen2", "qwen3"}) refused(family, "mlp_bias");
  CHECK_THAT(refusal({{"rope_interleaved", "true"}}), ContainsSubstring("rope_interleaved = true"));
  load({{"rope_interleaved", "false"}});  // as in SmolLM2's files
}

TEST_CASE("config - the sliding windows of the layers") {
  using Windows = std::vector<std::int64_t>;
  const auto windows = [](const std::string& family, const Keys& more) {
    Keys keys = more;
    keys["model_type"] = '"' + family + '"';
    return load(keys).sliding_windows;
  };
  CHECK(windows("mistral", {{"sliding_window", "16"}}) == Windows{16, 16, 16});
  CHECK(windows("mistral", {{"sliding_window", "null"}}) == Windows{0, 0, 0});
  CHECK(windows("llama", {{"sliding_window", "null"}}) == Windows{0, 0, 0});
  CHECK(windows("llama", {{"sliding_window", "2048"}}) == Windows{0, 0, 0});  // all positions
  for (const char* family : {"qwen2", "qwen3"}) {
    const std::string full = R"(["full_attention","full_attention","full_attention"])";
    const std::string mixed = R"(["sliding_attention","full_attention","sliding_attention"])";
    CHECK(windows(family, {{"sliding_window", "16"}}) == Windows{0, 0, 0});
    CHECK(windows(family, {{"sliding_window", "16"}, {"use_sliding_window", "false"}}) ==
          Windows{0, 0, 0});
    const Keys on{{"sliding_window", "16"}, {"use_sliding_window", "true"}};
    const auto with_on = [&](const std::string& key, const std::string& value) {
      Keys keys = on;
      keys[key] = value;
      return windows(family, keys);
    };
    CHECK(windows(family, on) == Windows{0, 0, 0});  // from layer 28 on
    CHECK(with_on("max_window_layers", "1") == Windows{0, 16, 16});
    CHECK(with_on("max_window_layers", "0") == Windows{16, 16, 16});
    CHECK(with_on("layer_types", mixed) == Windows{16, 0, 16});
    CHECK(with_on("layer_types", full) == Windows{0, 0, 0});
    CHECK(windows(family, {{"use_sliding_window", "true"},
                           {"sliding_window", "null"},
                           {"max_window_layers", "0"}}) == Windows{0, 0, 0});
    CHECK(windows(family, {{"use_sliding_window", "true"}, {"max_window_layers", "0"}}) ==
          Windows{4096, 4096, 4096});
  }
}

TEST_CASE("config - windows that contradict themselves or the family are refused") {
  CHECK_THAT(refusal({{"sliding_window", "2047"}}),
             ContainsSubstring("sliding_window = 2047: must be null or absent: llama models"));
  for (const char* family : {"\"llama\"", "\"mistral\"", "\"qwen2\"", "\"qwen3\""}) {
    for (const char* window : {"0", "-1", "\"16\"", "1.5"})
      CHECK_THAT(refusal({{"model_type", family}, {"sliding_window", window}}),
                 ContainsSubstring("sliding_window = "));
    for (const char* types : {"\"full_attention\"", "[1,2,3]", "{}"})
      CHECK_THAT(refusal({{"model_type", family}, {"layer_types", types}}),
                 ContainsSubstring("layer_types = ") && ContainsSubstring("a list of texts"));
    CHECK_THAT(refusal({{"model_type", family}, {"layer_types", R"(["full_attention"])"}}),
               ContainsSubstring("a list of num_hidden_layers = 3"));
    CHECK_THAT(refusal({{"model_type", family},
                        {"sliding_window", "null"},
                        {"layer_types", R"(["full_attention","linear_attention","x"])"}}),
               ContainsSubstring("\"full_attention\" for layer 1, not \"linear_attention\""));
  }
  const std::string full = R"(["full_attention","full_attention","full_attention"])";
  CHECK_THAT(refusal({{"model_type", "\"mistral\""}, {"layer_types", full}}),
             ContainsSubstring("\"sliding_attention\" for layer 0, not \"full_attention\""));
  CHECK_THAT(
      refusal({{"model_type", "\"qwen2\""},
               {"use_sliding_window", "false"},
               {"layer_types", R"(["full_attention","full_attention","sliding_attention"])"}}),
      ContainsSubstring("\"full_attention\" for layer 2, not \"sliding_attention\""));
}

TEST_CASE("config - the dtype may have its older or its newer name") {
  CHECK(load({{"torch_dtype", "\"float16\""}}).torch_dtype == DType::f16);
  CHECK(load({{"dtype", "\"float32\""}}).torch_dtype == DType::f32);
  CHECK(load({{"dtype", "\"bfloat16\""}, {"torch_dtype", "\"bfloat16\""}}).torch_dtype ==
        DType::bf16);
  CHECK_THAT(refusal({{"dtype", "\"float32\""}, {"torch_dtype", "\"float16\""}}),
             ContainsSubstring("dtype = \"float32\": must be \"float16\" like torch_dtype"));
  CHECK_THAT(refusal({{"torch_dtype", "\"int8\""}}),
             ContainsSubstring("torch_dtype = \"int8\": must be one of \"float32\", \"bfloat16\""));
}

TEST_CASE("config - the ids that end a text") {
  CHECK(load({{"eos_token_id", "7"}}).eos_token_ids == Ids{7});
  CHECK(load({{"eos_token_id", "[7,9]"}}).eos_token_ids == Ids{7, 9});
  CHECK(load({{"eos_token_id", "7"}}, R"({"eos_token_id":[8,99]})").eos_token_ids == Ids{8, 99});
  CHECK(load({{"eos_token_id", "7"}}, R"({"eos_token_id":8})").eos_token_ids == Ids{8});
  CHECK(load({}, R"({"eos_token_id":8})").eos_token_ids == Ids{8});
  for (const char* silent : {"{}", R"({"eos_token_id":null})", R"({"eos_token_id":[]})"})
    CHECK(load({{"eos_token_id", "[7,9]"}}, silent).eos_token_ids == Ids{7, 9});
  CHECK(load({{"bos_token_id", "99"}}).bos_token_id == 99);

  for (const char* id : {"100", "-1", "\"7\"", "7.0", "[7,[9]]", "[7,100]"})
    CHECK_THAT(refusal({{"eos_token_id", id}}),
               ContainsSubstring("eos_token_id = ") && ContainsSubstring("from 0 to 99"));
  for (const char* id : {"100", "-1", "[7]"})
    CHECK_THAT(refusal({{"bos_token_id", id}}), ContainsSubstring("bos_token_id = "));
  CHECK_THAT(refusal({}, R"({"eos_token_id":[8,100]})"),
             ContainsSubstring(
                 "generation_config.json: eos_token_id 100: must be below vocab_size = 100"));
}

TEST_CASE("config - all problems are reported at once and each line names the file") {
  const TempFolder folder;
  const auto file =
      folder.write("config.json", json_of(with({{"model_type", "\"gpt2\""},
                                                {"hidden_size", "-48"},
                                                {"vocab_size", ""},
                                                {"num_key_value_heads", "3"},
                                                {"head_dim", "7"},
                                                {"hidden_act", "\"relu\""},
                                                {"mlp_bias", "\"no\""},
                                                {"rope_scaling", R"({"rope_type":"ntk"})"},
                                                {"quantization_config", "{}"}})));
  folder.write("generation_config.json", R"({"temperature":-1,"top_k":-2})");
  const std::string message = refusal_of([&] { ModelConfig::load(folder.path()); });
  for (const char* key :
       {"model_type", "hidden_size", "vocab_size", "num_key_value_heads", "head_dim", "hidden_act",
        "mlp_bias", "rope_scaling.rope_type", "quantization_config"})
    CHECK_THAT(message, ContainsSubstring(file.string() + ": " + key));
  CHECK_THAT(message, ContainsSubstring("generation_config.json: temperature = -1") &&
                          ContainsSubstring("generation_config.json: top_k = -2"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 10);
}

TEST_CASE("config - a file that is no JSON object is refused by name") {
  const auto refusal_of_text = [](const std::string& text) {
    const TempFolder folder;
    const auto file = folder.write("config.json", text);
    const std::string message = refusal_of([&] { ModelConfig::load(folder.path()); });
    CHECK_THAT(message, ContainsSubstring(file.string() + ": "));
    return message;
  };
  CHECK_THAT(refusal_of_text("[]"), ContainsSubstring("must be a JSON object"));
  CHECK_THAT(refusal_of_text("null"), ContainsSubstring("must be a JSON object"));
  CHECK_THAT(refusal_of_text(""), ContainsSubstring("is empty"));
  CHECK_THAT(refusal_of_text("{\"hidden_size\": 4"), ContainsSubstring("no valid JSON at byte 18"));
  CHECK_THAT(refusal_of_text(json_of(kSmallest) + std::string(1, '\0') + "}"),
             ContainsSubstring("no valid JSON"));
  CHECK_THAT(refusal_of_text("{\"rms_norm_eps\": NaN}"), ContainsSubstring("no valid JSON"));
  CHECK_THAT(refusal_of_text(R"({"hidden_size":4,"hidden_size":8})"),
             ContainsSubstring("\"hidden_size\" stands twice"));
  CHECK_THAT(refusal_of_text(R"({"rope_scaling":{"factor":4,"factor":8}})"),
             ContainsSubstring("\"factor\" stands twice"));
  CHECK_THAT(
      refusal_of_text("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
      ContainsSubstring("levels deep"));
  CHECK_THAT(refusal_of_text("version https://git-lfs.github.com/spec/v1\n"),
             ContainsSubstring("Git LFS pointer"));

  const TempFolder empty;
  CHECK_THAT(refusal_of([&] { ModelConfig::load(empty.path()); }),
             ContainsSubstring("config.json: cannot be read"));
}

TEST_CASE("config - equal keys in different objects are no duplicates") {
  CHECK(load({{"x", R"([{"a":1},{"a":2}])"}, {"y", R"({"a":{"a":3}})"}}).hidden_size == 48);
}

TEST_CASE("config - a long value is cut in the message and not inside a character") {
  std::string long_text;
  for (int i = 0; i < 1000; ++i) long_text += "\xe4\xbd\xa0";  // three bytes each
  const std::string message = refusal({{"hidden_act", "\"" + long_text + "\""}});
  const std::size_t begin = message.find("hidden_act = \"") + 14;
  const std::size_t end = message.find("...: must be");
  REQUIRE(end != std::string::npos);
  CHECK((end - begin) % 3 == 0);
  CHECK(end - begin < 100);
}

TEST_CASE("generation config - the file and its keys are optional") {
  const TempFolder empty;
  for (const GenerationConfig& config :
       {GenerationConfig::load(empty.path()), load_generation("{}"),
        load_generation(
            R"({"eos_token_id":null,"do_sample":null,"temperature":null,"top_k":null})")}) {
    CHECK(config.eos_token_ids.empty());
    CHECK_FALSE(config.do_sample);
    CHECK(config.temperature == 1);
    CHECK(config.top_p == 1);
    CHECK(config.top_k == 0);
  }
}

TEST_CASE("generation config - values") {
  const GenerationConfig config = load_generation(
      R"({"eos_token_id":[3,5],"do_sample":true,"temperature":0,"top_p":0.25,"top_k":50})");
  CHECK(config.eos_token_ids == Ids{3, 5});
  CHECK(config.do_sample);
  CHECK(config.temperature == 0);
  CHECK(config.top_p == 0.25);
  CHECK(config.top_k == 50);
  CHECK(load_generation(R"({"top_k":-1})").top_k == 0);
  CHECK(load_generation(R"({"top_k":0})").top_k == 0);
  CHECK(load_generation(R"({"top_p":1,"temperature":2})").top_p == 1);
}

TEST_CASE("generation config - values that make no sense are refused by name") {
  const auto refused = [](const std::string& key, std::initializer_list<const char*> values) {
    for (const std::string value : values)
      CHECK_THAT(generation_refusal("{\"" + key + "\":" + value + "}"),
                 ContainsSubstring("generation_config.json: " + key + " = ") &&
                     ContainsSubstring(": must be "));
  };
  refused("temperature", {"-0.1", "1e39", "\"0.7\"", "true", "[0.7]"});
  refused("top_p", {"-0.1", "1.01", "\"0.9\""});
  refused("top_k", {"-2", "1.5", "50.0", "\"50\"", "99999999999"});
  refused("do_sample", {"1", "\"yes\""});
  refused("eos_token_id", {"-1", "\"2\"", "[1,-1]", "[[1]]", "4294967296"});
  CHECK_THAT(generation_refusal(R"({"temperature":1e999})"),
             ContainsSubstring("generation_config.json"));
  CHECK_THAT(generation_refusal(R"({"temperature":-1,"top_p":2,"top_k":-2})"),
             ContainsSubstring("temperature = -1") && ContainsSubstring("top_p = 2") &&
                 ContainsSubstring("top_k = -2"));
  CHECK_THAT(generation_refusal("[]"), ContainsSubstring("must be a JSON object"));
}

ModelConfig plan_config(const Keys& changes, const std::vector<ModelConfig::Key>& given = {}) {
  const TempFolder folder;
  const auto file = folder.write("config.json", json_of(with(changes)));
  return ModelConfig::for_plan(file, given);
}

TEST_CASE("plan - a config alone is enough and quantized weights are no problem") {
  const ModelConfig config =
      plan_config({{"quantization_config", R"({"bits":4,"group_size":128,"quant_method":"awq"})"},
                   {"eos_token_id", "999999"}});
  CHECK(config.hidden_size == 48);
  CHECK(config.quantized);
  CHECK_FALSE(plan_config({}).quantized);
}

TEST_CASE("plan - given sizes stand in for those of the file or for all of it") {
  CHECK(plan_config({}, {{"num_attention_heads", std::int64_t{12}}}).head_dim == 4);
  CHECK(plan_config({}, {{"tie_word_embeddings", true}}).tie_word_embeddings);
  const ModelConfig alone = ModelConfig::for_plan({}, {{"model_type", std::string("qwen3")},
                                                       {"hidden_size", std::int64_t{48}},
                                                       {"intermediate_size", std::int64_t{80}},
                                                       {"num_hidden_layers", std::int64_t{3}},
                                                       {"num_attention_heads", std::int64_t{8}},
                                                       {"vocab_size", std::int64_t{100}}});
  CHECK(alone.qk_norm);
  CHECK(alone.num_key_value_heads == 8);
  const std::string all = refusal_of([] {
    ModelConfig::for_plan(
        {}, {{"head_dim", std::int64_t{7}}, {"num_attention_heads", std::int64_t{8}}});
  });
  CHECK_THAT(all, ContainsSubstring("the command line: head_dim = 7: must be even") &&
                      ContainsSubstring("the command line: hidden_size is missing"));
  CHECK_THAT(refusal_of([] {
               plan_config({}, {{"num_key_value_heads", std::int64_t{3}}});
             }),
             ContainsSubstring("config.json and the command line: num_key_value_heads = 3"));
}

TEST_CASE("config and plan - mixtures of experts and unknown families are refused by key") {
  for (const std::string key :
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"}) {
    CHECK_THAT(refusal({{key, "8"}}), ContainsSubstring("config.json: " + key + " = 8"));
    CHECK_THAT(refusal_of([&] {
                 plan_config({{key, "8"}});
               }),
               ContainsSubstring("config.json: " + key + " = 8"));
    CHECK(load({{key, "null"}}).hidden_size == 48);
  }
  CHECK_THAT(refusal_of([] {
               plan_config({{"model_type", "\"mixtral\""}});
             }),
             ContainsSubstring("config.json: model_type = \"mixtral\""));
}

}  // namespace
}  // namespace tp

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
  CHECK(config.rope_theta == 10000);
  CHECK(config.tie_word_embeddings);
  CHECK_FALSE(config.attention_bias);
  CHECK_FALSE(config.mlp_bias);
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
    CHECK(config.rope_theta == 10000);
    CHECK_FALSE(config.tie_word_embeddings);
    CHECK_FALSE(config.attention_bias);
    CHECK_FALSE(config.mlp_bias);
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
  CHECK(load({{"attention_bias", "true"}}).attention_bias);
  CHECK(load({{"mlp_bias", "true"}}).mlp_bias);
  for (const char* value : {"-1e-6", "1.5", "\"1e-6\"", "true"})
    CHECK_THAT(refusal({{"rms_norm_eps", value}}), ContainsSubstring("rms_norm_eps = "));
  for (const char* value : {"0", "-10000", "0.5", "1e31", "\"10000\""})
    CHECK_THAT(refusal({{"rope_theta", value}}), ContainsSubstring("rope_theta = "));
  CHECK_THAT(refusal({{"rope_theta", "1e999"}}), ContainsSubstring("a number that is too large"));
}

TEST_CASE("config - what the decoder cannot compute is refused by name") {
  CHECK_THAT(refusal({{"model_type", "\"gpt2\""}}),
             ContainsSubstring("model_type = \"gpt2\": must be \"llama\""));
  CHECK_THAT(refusal({{"model_type", ""}}),
             ContainsSubstring("model_type is missing: must be \"llama\""));
  CHECK_THAT(refusal({{"model_type", "3"}}), ContainsSubstring("model_type = 3"));
  CHECK_THAT(refusal({{"hidden_act", "\"gelu\""}}),
             ContainsSubstring("hidden_act = \"gelu\": must be \"silu\""));
  CHECK_THAT(refusal({{"quantization_config", R"({"quant_method":"gptq","bits":4})"}}),
             ContainsSubstring("quantization_config = ") && ContainsSubstring("gptq"));
  CHECK_THAT(refusal({{"partial_rotary_factor", "0.5"}}),
             ContainsSubstring("partial_rotary_factor = 0.5: must be 1"));
}

TEST_CASE("config - rope_theta is read from both of its places") {
  CHECK(load({{"rope_theta", "500000"}}).rope_theta == 500000);
  CHECK(load({{"rope_theta", "1000000.0"}}).rope_theta == 1000000);
  CHECK(
      load({{"rope_parameters", R"({"rope_type":"default","rope_theta":500000.0})"}}).rope_theta ==
      500000);
  CHECK(load({{"rope_parameters", R"({"rope_theta":500000})"}}).rope_theta == 500000);
  CHECK(load({{"rope_theta", "20000"}, {"rope_scaling", R"({"type":"default"})"}}).rope_theta ==
        20000);
  CHECK(load({{"rope_theta", "20000"}, {"rope_parameters", R"({"rope_theta":20000.0})"}})
            .rope_theta == 20000);
  CHECK_THAT(refusal({{"rope_theta", "20000"}, {"rope_parameters", R"({"rope_theta":10000})"}}),
             ContainsSubstring("rope_parameters.rope_theta = 10000: must be 20000"));
  CHECK_THAT(refusal({{"rope_parameters", R"({"rope_theta":"10000"})"}}),
             ContainsSubstring("rope_parameters.rope_theta = \"10000\""));
}

TEST_CASE("config - scaled RoPE is refused and never run unscaled") {
  for (const std::string block : {"rope_scaling", "rope_parameters"})
    for (const std::string key : {"rope_type", "type"})
      for (const std::string type : {"llama3", "yarn", "linear", "longrope", "Default", ""})
        CHECK_THAT(
            refusal({{block, "{\"" + key + "\":\"" + type + "\",\"factor\":8.0}"}}),
            ContainsSubstring(block + "." + key + " = \"" + type + "\": must be \"default\""));
  CHECK_THAT(refusal({{"rope_scaling", R"({"type":"default","rope_type":"yarn"})"}}),
             ContainsSubstring("rope_scaling.rope_type = \"yarn\""));
  CHECK_THAT(refusal({{"rope_scaling", R"({"factor":8.0})"}}),
             ContainsSubstring("rope_scaling.rope_type is missing"));
  CHECK_THAT(refusal({{"rope_scaling", R"({"rope_type":["default"]})"}}),
             ContainsSubstring("rope_scaling.rope_type = [\"default\"]"));
  for (const std::string value : {"8.0", "\"yarn\"", "[]", "false"})
    CHECK_THAT(refusal({{"rope_scaling", value}}),
               ContainsSubstring("rope_scaling = " + value + ": must be a JSON object"));
  CHECK(load({{"rope_scaling", "{}"}}).rope_theta == 10000);
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
                                                {"rope_scaling", R"({"rope_type":"yarn"})"},
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

}  // namespace
}  // namespace tp

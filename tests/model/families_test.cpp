// What sets families of models apart: which tensors there are, in which shapes, and what is done
// with them. That the results are right is checked with golden_models_test.cpp.
#include <map>
#include <string>

#include "common/core/error.h"
#include "common/model/kv_cache.h"
#include "common/model/one_device_decoder.h"
#include "tests/catch.h"
#include "tests/engine/run_engine.h"
#include "tests/model/written_model.h"

using namespace tp;

namespace {

ModelConfig config_of(const std::string& json) {
  const TempFolder folder;
  folder.write("config.json", json);
  return ModelConfig::load(folder.path());
}

// The tensors that a model of these keys calls for, by name.
std::map<std::string, Shape> tensors_of(const std::string& json) {
  std::map<std::string, Shape> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(config_of(json)))
    shapes.emplace(tensor.name, tensor.shape);
  return shapes;
}

std::int64_t parameters_of(const std::string& json) {
  std::int64_t count = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config_of(json)))
    count += tensor.shape.elements();
  return count;
}

std::string small(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type":")" + model_type +
         R"(","hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,
         "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":30)" +
         more + "}";
}

Matrix random_values(const ExpectedTensor& tensor) {
  return random_matrix(tensor.shape[0], tensor.shape.row_elements(), 1);
}

std::string refusal_of(const WrittenModel& model) {
  try {
    const Loaded loaded(model.folder());
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "not refused";
}

constexpr char kQwen3Of4B[] = R"({"model_type":"qwen3","hidden_size":2560,"num_attention_heads":32,
    "num_key_value_heads":8,"head_dim":128,"num_hidden_layers":36,"intermediate_size":9728,
    "vocab_size":151936,"tie_word_embeddings":true})";

// A model that does nothing between its embedding and its head: all layers are zero. The last
// hidden state of token 2, [1, 1] with the norm weight [0.5, 1], is [0.5, 1].
constexpr char kHeadOnly[] = R"({"model_type":"llama","hidden_size":2,"intermediate_size":4,
    "num_hidden_layers":1,"num_attention_heads":4,"head_dim":2,"vocab_size":6,"rms_norm_eps":0,
    "max_position_embeddings":8)";
const std::vector<float> kTable{1, 0, 0, 1, 1, 1, -1, 0, 0, -1, 2, 1};

Matrix head_only_values(const ExpectedTensor& tensor) {
  if (tensor.name == "model.embed_tokens.weight") return {6, 2, kTable};
  if (tensor.name == "model.norm.weight") return {1, 2, {0.5, 1}};
  if (tensor.name == "lm_head.weight") return {};  // most checkpoints of tied models have none
  return {tensor.shape[0], tensor.shape.row_elements()};
}

// The head is the embedding.
void check_tied(const Loaded& model) {
  const std::vector<float> wanted{0.5, 1, 1.5, -0.5, -1, 2};
  const std::vector<std::int32_t> ids{2};
  OneDeviceDecoder decoder(model.config, model.weights, 8);
  CHECK(to_matrix(decoder.forward(ids, 0, 1)).values == wanted);
  for (const int tp_size : {1, 2, 3}) {
    INFO("tp " << tp_size);
    const EngineRun run =
        run_engine(model, tp_size, {.max_model_len = 8}, {{{2}, 1, {}, true, {}}});
    CHECK(run.done[0].ids == std::vector<std::int32_t>{5});
  }
}

}  // namespace

TEST_CASE("families - biases and norms are those of the family") {
  const auto has = [](const std::string& json, const std::string& module) {
    return tensors_of(json).contains("model.layers.1." + module);
  };
  struct Case {
    std::string json;
    bool qkv, o, mlp, norms;
  };
  for (const Case& c :
       {Case{small("llama"), false, false, false, false},
        Case{small("llama", R"(,"attention_bias":true)"), true, true, false, false},
        Case{small("llama", R"(,"mlp_bias":true)"), false, false, true, false},
        Case{small("mistral"), false, false, false, false},
        Case{small("qwen2"), true, false, false, false},
        Case{small("qwen2", R"(,"attention_bias":false)"), true, false, false, false},
        Case{small("qwen3"), false, false, false, true},
        Case{small("qwen3", R"(,"attention_bias":true)"), true, true, false, true}}) {
    INFO(c.json);
    for (const char* module : {"q_proj", "k_proj", "v_proj"})
      CHECK(has(c.json, "self_attn." + std::string(module) + ".bias") == c.qkv);
    CHECK(has(c.json, "self_attn.o_proj.bias") == c.o);
    for (const char* module : {"gate_proj", "up_proj", "down_proj"})
      CHECK(has(c.json, "mlp." + std::string(module) + ".bias") == c.mlp);
    CHECK(has(c.json, "self_attn.q_norm.weight") == c.norms);
    CHECK(has(c.json, "self_attn.k_norm.weight") == c.norms);
  }
}

TEST_CASE("families - a model loads with its own tensors and misses those of its family") {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    const WrittenModel model(small(family), random_values);
    CHECK(refusal_of(model) == "not refused");
    for (const ExpectedTensor& tensor : expected_tensors(Loaded(model.folder()).config)) {
      const WrittenModel without(small(family), [&](const ExpectedTensor& each) {
        return each.name == tensor.name ? Matrix() : random_values(each);
      });
      CHECK_THAT(refusal_of(without), ContainsSubstring(tensor.name + " is missing"));
    }
  }
}

TEST_CASE("families - a norm over all heads together is refused") {
  WrittenModel model(small("qwen3"), [](const ExpectedTensor& tensor) {
    return tensor.name == "model.layers.0.self_attn.q_norm.weight" ? Matrix()
                                                                   : random_values(tensor);
  });
  model.add("model.layers.0.self_attn.q_norm.weight", {16}, Matrix(1, 16));
  CHECK_THAT(refusal_of(model),
             ContainsSubstring("model.layers.0.self_attn.q_norm.weight has shape [16]") &&
                 ContainsSubstring("config.json says [4]"));
}

TEST_CASE("families - head_dim of its own") {
  const ModelConfig config = config_of(kQwen3Of4B);
  const auto shapes = tensors_of(kQwen3Of4B);
  const std::string layer = "model.layers.35.self_attn.";
  CHECK(shapes.at(layer + "q_proj.weight") == Shape{4096, 2560});
  CHECK(shapes.at(layer + "k_proj.weight") == Shape{1024, 2560});
  CHECK(shapes.at(layer + "v_proj.weight") == Shape{1024, 2560});
  CHECK(shapes.at(layer + "o_proj.weight") == Shape{2560, 4096});
  CHECK(shapes.at(layer + "q_norm.weight") == Shape{128});
  CHECK_FALSE(shapes.contains("lm_head.weight"));
  for (int rank = 0; rank < 4; ++rank) {
    const HeadShard heads = DecoderShard::of(config, rank, 4).heads;
    CHECK(heads.query.size() * config.head_dim == 1024);
    CHECK(heads.kv.size() * config.head_dim == 256);
  }
  // Of two-byte numbers a token takes 147456 bytes; ours are f32.
  const KvLayout one_token{config.num_hidden_layers, config.num_key_value_heads, config.head_dim, 1,
                           1};
  CHECK(one_token.bytes_per_block() == 2 * 147'456);
}

TEST_CASE("families - parameters are counted once") {
  CHECK(parameters_of(kQwen3Of4B) == 4'022'468'096);
  const std::string qwen3_06b = R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,
      "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,
      "intermediate_size":3072,"tie_word_embeddings":)";
  CHECK(parameters_of(qwen3_06b + "true}") == 596'049'920);
  CHECK(parameters_of(qwen3_06b + "false}") == 751'632'384);
}

// With the keys that such files have beside those that are read.
TEST_CASE("families - published models have as many parameters as their authors say") {
  const std::string smollm2_135m = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
      "hidden_size":576,"initializer_range":0.041666666666666664,"intermediate_size":1536,
      "is_llama_config":true,"max_position_embeddings":8192,"mlp_bias":false,"model_type":"llama",
      "num_attention_heads":9,"num_hidden_layers":30,"num_key_value_heads":3,"pad_token_id":2,
      "pretraining_tp":1,"rms_norm_eps":1e-05,"rope_interleaved":false,"rope_scaling":null,
      "rope_theta":100000,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
      "transformers.js_config":{"kv_cache_dtype":{"q4f16":"float16"}},"use_cache":true,
      "vocab_size":49152})";
  const std::string llama2_7b = R"({"architectures":["LlamaForCausalLM"],"bos_token_id":1,
      "eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,
      "intermediate_size":11008,"max_position_embeddings":4096,"model_type":"llama",
      "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"pretraining_tp":1,
      "rms_norm_eps":1e-05,"rope_scaling":null,"tie_word_embeddings":false,
      "torch_dtype":"float16","use_cache":true,"vocab_size":32000})";
  const std::string llama32_1b = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
      "bos_token_id":128000,"eos_token_id":[128001,128008,128009],"head_dim":64,
      "hidden_act":"silu","hidden_size":2048,"intermediate_size":8192,
      "max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
      "num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,
      "rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
      "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
      "rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
      "vocab_size":128256})";
  const std::string mistral_7b = R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,
      "eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
      "max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,
      "num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
      "sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
      "vocab_size":32000})";
  const std::string qwen25_05b = R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,
      "bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,
      "intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,
      "model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":24,
      "num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,
      "tie_word_embeddings":true,"torch_dtype":"bfloat16","use_sliding_window":false,
      "vocab_size":151936})";
  CHECK(parameters_of(smollm2_135m) == 134'515'008);
  CHECK(parameters_of(llama2_7b) == 6'738'415'616);
  CHECK(parameters_of(llama32_1b) == 1'235'814'400);
  CHECK(parameters_of(mistral_7b) == 7'241'732'096);
  CHECK(parameters_of(qwen25_05b) == 494'032'768);
  CHECK(config_of(mistral_7b).sliding_window(31) == 4096);
  CHECK(config_of(qwen25_05b).sliding_window(23) == kNoWindow);
  CHECK(config_of(llama32_1b).rope.factor == 32);
}

TEST_CASE("families - a tied head is the embedding") {
  const std::string tied = std::string(kHeadOnly) + R"(,"tie_word_embeddings":true})";
  WrittenModel model(tied, head_only_values);
  check_tied(Loaded(model.folder()));

  // A second head in the file is not used, and that is said.
  model.add("lm_head.weight", {6, 2}, Matrix(6, 2, {9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4}));
  const Loaded both(model.folder());
  check_tied(both);
  CHECK(both.weights.notes() ==
        std::vector<std::string>{
            "lm_head.weight is ignored: tie_word_embeddings says that the embedding is the head"});
}

TEST_CASE("families - a head that is not tied must be there") {
  for (const char* tie :
       {R"(,"tie_word_embeddings":false})", R"(,"tie_word_embeddings":null})", "}"})
    CHECK_THAT(refusal_of(WrittenModel(kHeadOnly + std::string(tie), head_only_values)),
               ContainsSubstring("lm_head.weight is missing (and tie_word_embeddings is false)"));
}

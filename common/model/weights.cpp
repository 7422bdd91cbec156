#include "common/model/weights.h"

#include <set>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

std::string name_in_layer(std::int64_t layer, const std::string& module, const char* what) {
  return fmt::format("model.layers.{}.{}.{}", layer, module, what);
}

struct Expected {
  std::string name;
  Shape shape;
};

// Every tensor that the decoder reads.
std::vector<Expected> expected_tensors(const ModelConfig& c) {
  std::vector<Expected> list;
  list.push_back({"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}});
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const auto add_linear = [&](const char* module, std::int64_t out, std::int64_t in,
                                bool has_bias) {
      list.push_back({name_in_layer(layer, module, "weight"), {out, in}});
      if (has_bias) list.push_back({name_in_layer(layer, module, "bias"), {out}});
    };
    list.push_back({name_in_layer(layer, "input_layernorm", "weight"), {c.hidden_size}});
    add_linear("self_attn.q_proj", c.q_size(), c.hidden_size, c.attention_bias);
    add_linear("self_attn.k_proj", c.kv_size(), c.hidden_size, c.attention_bias);
    add_linear("self_attn.v_proj", c.kv_size(), c.hidden_size, c.attention_bias);
    add_linear("self_attn.o_proj", c.hidden_size, c.q_size(), c.attention_bias);
    list.push_back({name_in_layer(layer, "post_attention_layernorm", "weight"), {c.hidden_size}});
    add_linear("mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    add_linear("mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    add_linear("mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
  }
  list.push_back({"model.norm.weight", {c.hidden_size}});
  if (!c.tie_word_embeddings) list.push_back({"lm_head.weight", {c.vocab_size, c.hidden_size}});
  return list;
}

}  // namespace

Weights Weights::open(const std::filesystem::path& folder,
                      const ModelConfig& config,
                      std::optional<DType> store_as) {
  Weights weights(Safetensors::open(folder), config, store_as);
  std::vector<std::string> problems;
  std::set<std::string> used;
  for (const Expected& expected : expected_tensors(config)) {
    used.insert(expected.name);
    if (!weights.files_.contains(expected.name)) {
      const bool head = expected.name == "lm_head.weight";
      problems.push_back(expected.name + " is missing" +
                         (head ? " (and tie_word_embeddings is false)" : ""));
      continue;
    }
    try {
      const Shape shape = weights.files_.tensor(expected.name).shape;
      if (shape != expected.shape)
        problems.push_back(fmt::format("{} has shape {}, config.json says {}", expected.name,
                                       shape.to_string(), expected.shape.to_string()));
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  if (!problems.empty())
    throw input_error(fmt::format("{}: the weights do not fit config.json:\n  {}", folder.string(),
                                  fmt::join(problems, "\n  ")));
  for (const std::string& name : weights.files_.names()) {
    if (used.contains(name)) continue;
    const bool tied_head = name == "lm_head.weight";
    weights.notes_.push_back(
        name + (tied_head ? " is ignored: tie_word_embeddings says that the embedding is the head"
                          : " is not used by this model"));
  }
  return weights;
}

WholeLinear Weights::linear(std::int64_t layer, const std::string& module) const {
  const bool has_bias = module.starts_with("mlp.") ? config_.mlp_bias : config_.attention_bias;
  return {files_.tensor(name_in_layer(layer, module, "weight")),
          has_bias ? files_.tensor(name_in_layer(layer, module, "bias")) : ConstTensorView{},
          store_as_};
}

ConstTensorView Weights::norm(std::int64_t layer, const std::string& module) const {
  return files_.tensor(name_in_layer(layer, module, "weight"));
}

ConstTensorView Weights::head() const {
  return tied() ? embedding() : files_.tensor("lm_head.weight");
}

}  // namespace tp

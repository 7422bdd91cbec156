#include "common/model/weights.h"

#include <iterator>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/fused_layers.h"

namespace tp {

namespace {

std::string name_in_layer(std::int64_t layer, const std::string& module, const char* what) {
  return fmt::format("model.layers.{}.{}.{}", layer, module, what);
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& c) {
  std::vector<ExpectedTensor> list;
  list.push_back({"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}});
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const auto add_linear = [&](const char* module, std::int64_t out, std::int64_t in,
                                bool has_bias) {
      list.push_back({name_in_layer(layer, module, "weight"), {out, in}});
      if (has_bias) list.push_back({name_in_layer(layer, module, "bias"), {out}});
    };
    list.push_back({name_in_layer(layer, "input_layernorm", "weight"), {c.hidden_size}});
    add_linear("self_attn.q_proj", c.q_size(), c.hidden_size, c.qkv_bias);
    add_linear("self_attn.k_proj", c.kv_size(), c.hidden_size, c.qkv_bias);
    add_linear("self_attn.v_proj", c.kv_size(), c.hidden_size, c.qkv_bias);
    add_linear("self_attn.o_proj", c.hidden_size, c.q_size(), c.o_bias);
    if (c.qk_norm) {
      list.push_back({name_in_layer(layer, "self_attn.q_norm", "weight"), {c.head_dim}});
      list.push_back({name_in_layer(layer, "self_attn.k_norm", "weight"), {c.head_dim}});
    }
    list.push_back({name_in_layer(layer, "post_attention_layernorm", "weight"), {c.hidden_size}});
    add_linear("mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    add_linear("mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    add_linear("mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
  }
  list.push_back({"model.norm.weight", {c.hidden_size}});
  if (!c.tie_word_embeddings) list.push_back({"lm_head.weight", {c.vocab_size, c.hidden_size}});
  return list;
}

Weights Weights::open(const std::filesystem::path& folder,
                      const ModelConfig& config,
                      std::optional<DType> store_as) {
  Weights weights(Safetensors::open(folder), config, store_as);
  Problems problems;
  std::set<std::string> used;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    weights.tensor_names_.push_back(expected.name);
    weights.check(expected.name, expected.shape, used, problems);
  }
  if (!problems.empty())
    throw input_error(fmt::format("{}: the weights do not fit config.json:\n{}", folder.string(),
                                  problems.text()));
  for (const std::string& name : weights.tensor_names_)
    weights.name_by_begin_.emplace(weights.tensor(name).data, name);
  for (const std::string& name : weights.files_.names()) {
    if (used.contains(name)) continue;
    const bool tied_head = name == "lm_head.weight";
    weights.notes_.push_back(
        name + (tied_head ? " is ignored: tie_word_embeddings says that the embedding is the head"
                          : " is not used by this model"));
  }
  return weights;
}

// Adds the name under which the files have the tensor to `used`.
void Weights::check(const std::string& name,
                    const Shape& shape,
                    std::set<std::string>& used,
                    Problems& problems) const {
  std::string stored = name;
  Shape stored_shape = shape;
  const std::optional<FusedPart> part = fused_part(config_, name);
  if (part && files_.contains(part->tensor)) {
    if (files_.contains(name))
      problems.add(fmt::format("  {} is there twice: {} holds it, too", name, part->tensor));
    stored = part->tensor;
    stored_shape = shape.with_rows(part->fused_rows);
  }
  if (!used.insert(stored).second) return;  // another part of it has been checked
  if (!files_.contains(stored)) {
    const bool head = name == "lm_head.weight";
    problems.add("  " + name + " is missing" + (head ? " (and tie_word_embeddings is false)" : ""));
    return;
  }
  try {
    const Shape found = files_.tensor(stored).shape;
    if (found != stored_shape)
      problems.add(fmt::format("  {} has shape {}, config.json says {}", stored, found.to_string(),
                               stored_shape.to_string()));
  } catch (const Error& e) {
    problems.add(fmt::format("  {}", e.what()));
  }
}

ConstTensorView Weights::tensor(const std::string& name) const {
  const std::optional<FusedPart> part = fused_part(config_, name);
  if (part && files_.contains(part->tensor)) return files_.tensor(part->tensor).rows_in(part->rows);
  return files_.tensor(name);
}

const std::string& Weights::name_of(ConstTensorView view) const {
  const auto behind = name_by_begin_.upper_bound(view.data);
  if (behind == name_by_begin_.begin())
    throw Error(ErrorKind::rank, "these bytes belong to no weight of the model");
  return std::prev(behind)->second;
}

WholeLinear Weights::linear(std::int64_t layer, const std::string& module) const {
  const bool has_bias = module.starts_with("mlp.")     ? config_.mlp_bias
                        : module == "self_attn.o_proj" ? config_.o_bias
                                                       : config_.qkv_bias;
  return {tensor(name_in_layer(layer, module, "weight")),
          has_bias ? tensor(name_in_layer(layer, module, "bias")) : ConstTensorView{}, store_as_};
}

ConstTensorView Weights::norm(std::int64_t layer, const std::string& module) const {
  return files_.tensor(name_in_layer(layer, module, "weight"));
}

ConstTensorView Weights::head() const {
  return tied() ? embedding() : files_.tensor("lm_head.weight");
}

}  // namespace tp

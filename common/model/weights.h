// The weights of a model by their place in the decoder. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/safetensors.h"
#include "common/parallel/linear.h"

namespace tp {

// A tensor that the decoder reads, by its name in the weight files.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

// All of them. The embedding stands there once, also if lm_head is tied to it.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Views into the mapped weight files of a model folder; nothing is copied before a rank takes its
// shard. All ranks can share one object: it never changes.
class Weights {
 public:
  // Opens the files and checks that every tensor that the config calls for is there, in the shape
  // it says. Where layers are stored as one matrix (fused_layers.h), its rows are taken for them.
  // Errors: tp::Error (input) with all missing and misshapen tensors at once.
  static Weights open(const std::filesystem::path& folder,
                      const ModelConfig& config,
                      std::optional<DType> store_as);

  // A linear layer of decoder layer `layer`, for example "self_attn.q_proj".
  WholeLinear linear(std::int64_t layer, const std::string& module) const;
  // The norm weight of decoder layer `layer`: "input_layernorm", "post_attention_layernorm" or, if
  // the model has them, "self_attn.q_norm" and "self_attn.k_norm".
  ConstTensorView norm(std::int64_t layer, const std::string& module) const;
  ConstTensorView final_norm() const { return files_.tensor("model.norm.weight"); }
  ConstTensorView embedding() const { return files_.tensor("model.embed_tokens.weight"); }
  // [vocab_size, hidden_size]; the embedding itself if the two are tied.
  ConstTensorView head() const;
  bool tied() const { return config_.tie_word_embeddings; }
  std::optional<DType> store_as() const { return store_as_; }

  // The tensors that the decoder reads, in its order.
  const std::vector<std::string>& tensor_names() const { return tensor_names_; }
  // One of them; rows of a fused tensor if the file has no other.
  ConstTensorView tensor(const std::string& name) const;
  // The name of the tensor that a view of weights belongs to.
  const std::string& name_of(ConstTensorView view) const;
  const Safetensors& files() const { return files_; }

  // What the user might want to know, one line each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void check(const std::string& name,
             const Shape& shape,
             std::set<std::string>& used,
             Problems& problems) const;
  Weights(Safetensors files, ModelConfig config, std::optional<DType> store_as)
      : files_(std::move(files)),
        config_(std::move(config)),
        store_as_(store_as),
        notes_(files_.notes()) {}

  Safetensors files_;
  ModelConfig config_;
  std::optional<DType> store_as_;
  std::vector<std::string> tensor_names_;
  std::map<const std::byte*, std::string, std::less<>> name_by_begin_;
  std::vector<std::string> notes_;
};

}  // namespace tp

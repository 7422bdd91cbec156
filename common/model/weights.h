// The weights of a model by their place in the decoder. [introduced in chapter 06]
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/safetensors.h"
#include "common/parallel/linear.h"

namespace tp {

// Views into the mapped weight files of a model folder; nothing is copied before a rank takes its
// shard. All ranks can share one object: it never changes.
class Weights {
 public:
  // Opens the files and checks that every tensor that the config calls for is there, in the shape
  // it says.
  // Errors: tp::Error (input) with all missing and misshapen tensors at once.
  static Weights open(const std::filesystem::path& folder,
                      const ModelConfig& config,
                      std::optional<DType> store_as);

  // A linear layer of decoder layer `layer`, for example "self_attn.q_proj".
  WholeLinear linear(std::int64_t layer, const std::string& module) const;
  // The norm weight of decoder layer `layer`: "input_layernorm" or "post_attention_layernorm".
  ConstTensorView norm(std::int64_t layer, const std::string& module) const;
  ConstTensorView final_norm() const { return files_.tensor("model.norm.weight"); }
  ConstTensorView embedding() const { return files_.tensor("model.embed_tokens.weight"); }
  // [vocab_size, hidden_size]; the embedding itself if the two are tied.
  ConstTensorView head() const;
  bool tied() const { return config_.tie_word_embeddings; }
  std::optional<DType> store_as() const { return store_as_; }

  // What the user might want to know, one line each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Weights(Safetensors files, const ModelConfig& config, std::optional<DType> store_as)
      : files_(std::move(files)), config_(config), store_as_(store_as), notes_(files_.notes()) {}

  Safetensors files_;
  ModelConfig config_;
  std::optional<DType> store_as_;
  std::vector<std::string> notes_;
};

}  // namespace tp

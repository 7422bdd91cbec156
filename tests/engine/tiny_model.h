// A small model with integer weights and all biases, written to a folder as a checkpoint.
#pragma once

#include <string>

#include "common/core/matrix.h"
#include "tests/checkpoint.h"
#include "tests/temp_folder.h"

namespace tp {

class TinyModel {
 public:
  static constexpr std::int64_t kVocab = 29;

  TinyModel() {
    folder_.write("config.json",
                  R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 8,
                      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 8,
                      "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 29,
                      "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000,
                      "tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true})");
    add("model.embed_tokens", kVocab, 8);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
        const std::int64_t out = name[0] == 'q' ? 32 : 8;
        add(layer + "self_attn." + name, out, 8, true);
      }
      add(layer + "self_attn.o_proj", 8, 32, true);
      add(layer + "mlp.gate_proj", 24, 8, true);
      add(layer + "mlp.up_proj", 24, 8, true);
      add(layer + "mlp.down_proj", 8, 24, true);
      add_vector(layer + "input_layernorm.weight", 8);
      add_vector(layer + "post_attention_layernorm.weight", 8);
    }
    add_vector("model.norm.weight", 8);
    folder_.write("model.safetensors", file_.bytes());
  }

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  void add(const std::string& layer, std::int64_t rows, std::int64_t cols, bool bias = false) {
    file_.add(layer + ".weight", "F32", {rows, cols},
              bytes_of(random_integers(rows, cols, ++seed_).values));
    if (bias) add_vector(layer + ".bias", rows);
  }
  void add_vector(const std::string& name, std::int64_t length) {
    file_.add(name, "F32", {length}, bytes_of(random_integers(1, length, ++seed_).values));
  }
  TempFolder folder_;
  SafetensorsFile file_;
  std::uint64_t seed_ = 0;
};

}  // namespace tp

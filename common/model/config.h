// The sizes and switches of a model, from its config.json. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/core/dtype.h"
#include "common/device/batch.h"
#include "common/device/rope_config.h"

namespace tp {

// A decoder-only transformer. Fields have their Hugging Face names; all sizes are those of the
// whole model.
struct ModelConfig {
  std::string model_type;  // the family: "llama", "mistral", "qwen2" or "qwen3"
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // divides num_attention_heads
  std::int64_t head_dim = 0;             // even; not always hidden_size / num_attention_heads
  std::int64_t vocab_size = 0;           // rows of the embedding; the tokenizer may know fewer ids
  std::int64_t max_position_embeddings = 0;  // the longest sequence, in tokens
  double rms_norm_eps = 0;
  RopeConfig rope;
  bool tie_word_embeddings = false;  // lm_head is the embedding: the file needs no lm_head.weight
  bool qkv_bias = false;             // q, k and v_proj have biases
  bool o_bias = false;               // o_proj has one
  bool mlp_bias = false;             // gate, up and down_proj have biases
  bool qk_norm = false;              // each head of q and k is normed before RoPE
  std::vector<std::int64_t> sliding_windows;  // of each layer: tokens that a token attends to
  std::string hidden_act;                     // the gate's activation: "silu"
  bool quantized = false;  // the file says so of the weights; only a plan goes on with that
  std::optional<DType> torch_dtype;  // said of the weights; each of them has its own dtype anyway
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;  // each of them ends a text; empty: none does

  std::int64_t q_size() const { return num_attention_heads * head_dim; }
  std::int64_t kv_size() const { return num_key_value_heads * head_dim; }
  // kNoWindow if the layer attends to all tokens.
  std::int64_t sliding_window(std::int64_t layer) const {
    return sliding_windows[static_cast<std::size_t>(layer)];
  }

  // Reads config.json in a model folder, and the ids that end a text from its
  // generation_config.json if they stand there. The sizes must be given, but for
  // num_key_value_heads (then num_attention_heads), head_dim (then hidden_size /
  // num_attention_heads) and max_position_embeddings; other keys that are missing have the defaults
  // of the family. What sets a family apart stands in one table, in config.cpp.
  // The sizes are bounded, so that the bytes of all weights and of the KV cache of a sequence of
  // full length fit into 63 bits.
  // Errors: tp::Error (input) with all problems at once, each line naming the file, the key, its
  //         value and what would be right. What would be computed wrongly is refused, never
  //         ignored: other families, activations and kinds of RoPE, quantized weights, and switches
  //         that the family does not know.
  static ModelConfig load(const std::filesystem::path& folder);

  // A key of config.json and its value.
  using Key = std::pair<std::string, std::variant<bool, std::int64_t, std::string>>;

  // The same for a plan, which needs no weights and makes no text: from a config.json, if there is
  // one, where the given keys stand in for those of the file. Quantized weights are no problem, ids
  // of tokens are not looked at. [chapter 08]
  // Errors: as load().
  static ModelConfig for_plan(const std::optional<std::filesystem::path>& file,
                              const std::vector<Key>& given);
};

}  // namespace tp

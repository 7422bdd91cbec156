// One rank's part of a decoder layer, and of a stack of them.
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/parallel/gated_mlp.h"
#include "common/parallel/run_ranks.h"
#include "common/parallel/sharded_attention.h"
#include "layer_weights.h"
#include "sequences.h"

namespace tp {

// This rank's heads; with a fault, what it takes for them.
ShardedAttention load_attention(const RankContext& ctx,
                                const LayerWeights& weights,
                                const std::string& fault);

Tensor activations(const RankContext& ctx, std::int64_t rows, std::int64_t columns);

// Memory for the results of an attention on the way to o_proj.
struct AttentionBuffers {
  Tensor q, k, v, attention;

  AttentionBuffers(const RankContext& ctx, const ShardedAttention& layer, std::int64_t rows);
  AttentionSteps steps() { return {q, k, v, attention}; }
};

struct DecoderLayer {
  Tensor input_norm, post_attention_norm;  // replicated
  ShardedAttention attention;
  GatedMlp mlp;

  static DecoderLayer load(const RankContext& ctx,
                           const LayerWeights& weights,
                           const std::string& fault);

  // x += attention(norm(x)), then x += mlp(norm(x)), for the tokens of prefill().
  // Moves: two all_reduces of x, labelled o_proj and down_proj.
  void add_attention(const RankContext& ctx, TensorView x) const;
  void add_mlp(const RankContext& ctx, TensorView x) const;
};

// A decoder in miniature: an embedding, 80 layers, a norm and a head.
struct Stack {
  static constexpr int kLayers = 80;
  static constexpr std::int64_t kVocab = 40;
  static constexpr LayerSizes kSizes{
      .hidden = 20, .heads = 8, .kv_heads = 4, .head_dim = 6, .intermediate = 32};

  Tensor embedding;  // [kVocab, hidden]
  std::vector<LayerWeights> layers;
  Matrix norm;
  StoredLinear head;  // [kVocab, hidden]

  static Stack make(DType dtype, std::uint64_t seed);

  // The logits of all tokens on one device.
  Matrix on_one_device() const;
  // On one of several ranks; rank 0 keeps the logits as "logits".
  void on_each_rank(const RankContext& ctx, RankOutput& out, const std::string& fault) const;
};

}  // namespace tp

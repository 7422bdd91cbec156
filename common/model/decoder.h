// A decoder-only transformer, one rank's part of it. [introduced in chapter 06]
//
// Each layer is column-parallel into the heads and the intermediate features and row-parallel out
// of them:
//
//   x -> norm -> q, k, v (by heads) -> rope -> attention -> o_proj -> sum over ranks -> + x
//   x -> norm -> gate, up (by features) -> silu(gate) * up -> down_proj -> sum over ranks -> + x
//
// so it communicates twice per layer; besides, once for the embedding and once for the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/device/rope_table.h"
#include "common/model/config.h"
#include "common/model/kv_cache.h"
#include "common/model/tap.h"
#include "common/model/weights.h"
#include "common/parallel/gated_mlp.h"
#include "common/parallel/sharded_attention.h"
#include "common/parallel/vocab_parallel.h"

namespace tp {

// What a rank holds of the model.
struct DecoderShard {
  HeadShard heads;  // query heads, and the KV heads they read
  Range kv_loaded;  // KV heads whose weights are loaded: heads.kv
  VocabShard vocab;
  int row_part = 0;  // whose input features of o_proj and down_proj are loaded: the rank's

  static DecoderShard of(const ModelConfig& config, int rank, int tp_size);
};

// Sizes for which memory is allocated once, before the first token.
struct DecoderLimits {
  std::int64_t max_model_len = 0;           // tokens of one sequence in the cache
  std::int64_t max_num_batched_tokens = 0;  // rows of one call of forward
  std::int64_t max_logit_rows = 1;          // rows of one call whose logits are wanted
  std::int64_t block_size = 0;              // of the KV cache
  std::int64_t num_blocks = 0;              // 0: the cache is made later, by make_kv_cache
  DType kv_dtype = DType::f32;

  // One sequence in one block: a contiguous cache.
  static DecoderLimits contiguous(std::int64_t max_model_len,
                                  std::int64_t max_num_batched_tokens,
                                  std::int64_t max_logit_rows) {
    return {max_model_len, max_num_batched_tokens, max_logit_rows, max_model_len, 1, DType::f32};
  }
};

// What one call of forward computes.
struct DecoderInput {
  std::span<const std::int32_t> token_ids;  // one per row of the batch
  BatchView batch;
  std::span<const std::int32_t> logit_rows;  // the rows whose logits are wanted
};

class Decoder {
 public:
  // Copies this rank's shard of the weights, and nothing else, and allocates everything that
  // forward needs.
  // Ranks: every rank.
  Decoder(const RankContext& ctx,
          const ModelConfig& config,
          const Weights& weights,
          const DecoderShard& shard,
          const DecoderLimits& limits);

  // Allocates the KV cache, when it is known how much room the rest has left for it.
  // Ranks: every rank, with the same number of blocks.
  void make_kv_cache(const RankContext& ctx, std::int64_t num_blocks);

  // Runs the new tokens of a batch of sequences, whose earlier tokens are in the KV cache, and
  // returns the logits of the wanted rows, on rank 0; they are valid until the next call. The other
  // ranks get a view without data.
  // Shapes: token_ids [rows of the batch] -> logits [logit_rows, vocab_size].
  // Ranks:  every rank, with the same input.
  // Moves:  all_reduce of rows * hidden f32 for the embedding and twice per layer, and, if any
  //         logits are wanted, a gather of them.
  // Errors: tp::Error if there are more rows than the limits allow, or an id is not in the
  //         vocabulary.
  ConstTensorView forward(const RankContext& ctx, const DecoderInput& input, const Tap& tap = {});

  // The replicated biases that are added after the sums.
  template <class Visit>
  void for_each_row_parallel_bias(const Visit& visit) {
    for (Layer& layer : layers_)
      for (Tensor* bias : {&layer.attention.o.bias, &layer.mlp.down.bias})
        if (!bias->empty()) visit(bias->view());
  }

  const DecoderLimits& limits() const { return limits_; }
  std::int64_t vocab_size() const { return config_.vocab_size; }
  const KvLayout& kv_layout() const { return kv_->layout(); }
  const DecoderShard& shard() const { return shard_; }

 private:
  struct Layer {
    Tensor input_norm, post_attention_norm;  // replicated
    ShardedAttention attention;              // by heads
    GatedMlp mlp;
    std::string name, o_label, down_label;  // made once: labels in the ledger are text
  };
  // Memory for the results of max_num_batched_tokens tokens.
  struct Activations {
    Tensor x, normed, q, k, v, attention, projected, gate_up, activated;
    Tensor last, logits_local, staging, logits;  // of the rows whose logits are wanted
  };

  // From act_.normed to act_.projected, the sum over the ranks.
  void attention_block(const RankContext& ctx,
                       Layer& layer,
                       std::int64_t index,
                       const BatchView& batch,
                       const Tap& tap);
  void mlp_block(const RankContext& ctx, Layer& layer, std::int64_t tokens, const Tap& tap);
  // x += act_.projected; and, for the next block, act_.normed = the norm of x.
  void add_and_norm(const RankContext& ctx, std::int64_t tokens, const Tensor* next_norm);
  ConstTensorView gather_logits(const RankContext& ctx, ConstTensorView hidden);
  void allocate_activations(const RankContext& ctx);
  void reserve_workspace(const RankContext& ctx);

  ModelConfig config_;
  DecoderShard shard_;
  DecoderLimits limits_;
  VocabParallelTable embedding_;
  VocabParallelTable head_;  // without rows if tied
  std::vector<Layer> layers_;
  Tensor final_norm_;
  RopeTable rope_;
  std::optional<KvCache> kv_;
  Activations act_;
  std::vector<Range> logit_ranges_;
};

}  // namespace tp

// The attention layer of this chapter: on one device with a contiguous cache, and one rank's part of
// it with a paged cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/matrix.h"
#include "common/core/options.h"
#include "common/engine/batch_plan.h"
#include "common/model/kv_cache.h"
#include "common/parallel/linear.h"

namespace tp {

inline constexpr std::int64_t kHidden = 20, kHeads = 16, kKvHeads = 8, kHeadDim = 6;

// Weights as stored, [out, in].
struct Inputs {
  Tensor embedding;  // [vocab, hidden]
  Tensor q, k, v, o;
};
Inputs make_inputs(const Options& options);

// What is compared: the outputs of the heads, and y behind o_proj.
struct LayerResult {
  Matrix heads;  // [tokens, heads * head_dim]
  Matrix y;      // [tokens, hidden]
};

// All tokens of one sequence at once on one device, which knows nothing of ranks, plans or blocks.
LayerResult run_one_device(const Inputs& in, std::span<const std::int32_t> token_ids);

// One rank's part of the layer.
struct AttentionShard {
  HeadShard heads;
  Tensor embedding;              // whole on every rank
  ColumnParallelLinear q, k, v;  // of this rank's heads
  RowParallelLinear o;

  static AttentionShard load(const RankContext& ctx, const Inputs& in);

  // The new tokens of a plan. Only here are its slots and block tables read.
  // Shapes: heads_local [tokens, query heads of this rank * head_dim], y [tokens, hidden].
  // Moves:  one all_reduce of y, "o_proj".
  struct Output {
    Tensor heads_local, y;
  };
  Output run(const RankContext& ctx, const BatchPlan& plan, const KvLayer& kv) const;
};

// The features of each rank's query heads.
std::vector<Range> head_features(int tp_size);

}  // namespace tp

// The two ways to split a linear layer y = x W^T + b over ranks. [introduced in chapter 01]
//
// Weights are stored as [out_features, in_features], as in checkpoints. The articles write W as
// [in, out]: their columns are rows in memory. Column-parallel always means: the output features
// are split.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/core/tensor.h"
#include "common/parallel/rank_context.h"
#include "common/parallel/shards.h"

namespace tp {

// A whole linear layer on the host, usually where it lies in a mapped weight file.
struct WholeLinear {
  ConstTensorView weight;              // [out, in]
  ConstTensorView bias = {};           // [out], or no data
  std::optional<DType> store_as = {};  // how ranks store their shards; nothing: as it is
};

// A partial sum: one rank's addend of a sum that is not complete before all ranks' addends are
// added. It cannot be passed where a tensor is expected, so that a forgotten all-reduce does not
// compile; only the buffer behind it can still be taken for the sum.
struct PartialSum {
  TensorView addend;
};

// Adds the addends of all ranks, in place, and returns the sum, the same bits on every rank.
// Moves: one all_reduce.
TensorView sum_over_ranks(const RankContext& ctx, PartialSum partial, std::string_view label);

// y_local = x W_local^T + b_local: each rank has a range of the output features.
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; article 000, "Column Parallel Linear".
struct ColumnParallelLinear {
  Tensor weight_local;  // [out_local, in]
  Tensor bias_local;    // [out_local] or empty
  Range out_global;     // which output features of the whole layer these are

  // Copies this rank's rows, and nothing else, from the whole layer.
  static ColumnParallelLinear shard(const RankContext& ctx, const WholeLinear& whole);
  // The same for given rows: heads are split, not single features.
  static ColumnParallelLinear shard_rows(const RankContext& ctx,
                                         const WholeLinear& whole,
                                         Range rows);
  // Several layers that share their input, such as gate and up, as one: its rows are this rank's
  // rows of each part, one part behind the other. A stored fused matrix is never cut as a whole.
  // If one of the parts is kept in f32, all of them are.
  // Shapes: equal for all parts; biases for all of them or for none.
  static ColumnParallelLinear shard_fused(const RankContext& ctx,
                                          const std::vector<WholeLinear>& parts);

  std::int64_t out_local() const { return weight_local.shape()[0]; }

  // Shapes: x [M, in], the same on every rank -> y_local [M, out_local].
  // Ranks: each for itself; nothing is communicated.
  void forward(const RankContext& ctx, ConstTensorView x, TensorView y_local) const;
};

// y = sum over ranks of x_local W_local^T, + b: each rank has a range of the input features.
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; article 000, "Row Parallel Linear".
struct RowParallelLinear {
  Tensor weight_local;  // [out, in_local]
  Tensor bias;          // [out] on every rank, or empty; added once, after the sum
  Range in_global;      // which input features of the whole layer these are
  SumBlocks blocks;     // this rank's part of the summation order

  // Copies this rank's columns, and nothing else, from the whole weight, and the whole bias. The
  // input features are split in units: 1, or head_dim for a layer behind attention.
  static RowParallelLinear shard(const RankContext& ctx,
                                 const WholeLinear& whole,
                                 std::int64_t unit = 1);

  // This rank's addend, without the bias.
  // Shapes: x_local [M, in_local] -> y [M, out].
  PartialSum partial(const RankContext& ctx, ConstTensorView x_local, TensorView y) const;

  // Makes the output of the addend: sums over ranks, then adds the bias once.
  // Moves: one all_reduce of the addend.
  TensorView finish(const RankContext& ctx, PartialSum partial, std::string_view label) const;

  // The whole layer: partial, then finish.
  // Moves: one all_reduce of M * out * 4 bytes.
  void forward(const RankContext& ctx,
               ConstTensorView x_local,
               TensorView y,
               std::string_view label) const;
};

}  // namespace tp

// The attention of a decoder layer with one all-reduce: heads are column-parallel in, row-parallel
// out. [introduced in chapter 03]
#pragma once

#include "common/device/batch.h"
#include "common/device/head_shard.h"
#include "common/device/rope_table.h"
#include "common/parallel/linear.h"

namespace tp {

// The four layers of the whole attention, and what only some families of models have.
struct WholeAttention {
  WholeLinear q;                             // [heads * head_dim, hidden]
  WholeLinear k, v;                          // [kv_heads * head_dim, hidden]
  WholeLinear o;                             // [hidden, heads * head_dim]
  ConstTensorView q_norm = {}, k_norm = {};  // [head_dim], or no data [chapter 06]
  float norm_eps = 0;
  std::int64_t window = kNoWindow;  // tokens that a token attends to [chapter 06]
};

// The results on the way to o_proj, in memory of the caller, who may look at them afterwards.
// Shapes: q, attention [M, q_local]; k, v [M, kv_local].
struct AttentionSteps {
  TensorView q, k, v, attention;
};

// y = o(attention(rope(q(x)), rope(k(x)), v(x))), in some families with a norm of each head of q and
// k before rope. The heads are split, never the features of one
// head: the softmax of a head needs all of its features and no other head, so a rank computes its
// heads from x to its addend of y.
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; article 000, "Attention".
struct ShardedAttention {
  ColumnParallelLinear q, k, v;  // the rows of this rank's heads
  RowParallelLinear o;           // the columns of its query heads
  HeadShard heads;               // its query heads, and the KV heads that they read
  Tensor q_norm, k_norm;         // [head_dim] on every rank, one weight for all heads; or empty
  float norm_eps = 0;
  std::int64_t window = kNoWindow;

  // Copies the rows of `heads` from q, k and v, the columns of ctx.rank from o, the norms, and
  // nothing else.
  // heads is head_shard(..., ctx.rank, ctx.tp_size); then both are the same query heads.
  static ShardedAttention load(const RankContext& ctx,
                               const WholeAttention& whole,
                               const HeadShard& heads,
                               std::int64_t head_dim);

  std::int64_t q_local() const { return q.out_local(); }
  std::int64_t kv_local() const { return k.out_local(); }

  // This rank's addend of y, without the bias of o; o.finish makes the sum. The keys and values of
  // the new tokens are put into the cache first, so that tokens of one batch see each other.
  // Shapes: x, y [M, hidden] with the M rows of the batch; kv has heads.kv.size() heads; the table
  //         reaches to the last position of the batch.
  // Ranks:  each for itself; nothing is communicated.
  PartialSum partial(const RankContext& ctx,
                     ConstTensorView x,
                     const RopeTable& rope,
                     const BatchView& batch,
                     const KvLayer& kv,
                     const AttentionSteps& steps,
                     TensorView y) const;
};

}  // namespace tp

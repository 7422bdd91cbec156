#include "common/parallel/sharded_attention.h"

namespace tp {

ShardedAttention ShardedAttention::load(const RankContext& ctx,
                                        const WholeAttention& whole,
                                        const HeadShard& heads,
                                        std::int64_t head_dim) {
  const auto rows_of = [&](const WholeLinear& layer, Range of_heads) {
    return ColumnParallelLinear::shard_rows(ctx, layer, of_heads.times(head_dim));
  };
  const auto norm = [&](ConstTensorView weight) {
    return weight.data == nullptr ? Tensor()
                                  : ctx.device.upload(weight, whole.q.store_as, "weights");
  };
  return {.q = rows_of(whole.q, heads.query),
          .k = rows_of(whole.k, heads.kv),
          .v = rows_of(whole.v, heads.kv),
          .o = RowParallelLinear::shard(ctx, whole.o, head_dim),
          .heads = heads,
          .q_norm = norm(whole.q_norm),
          .k_norm = norm(whole.k_norm),
          .norm_eps = whole.norm_eps,
          .window = whole.window};
}

// [region partial]
PartialSum ShardedAttention::partial(const RankContext& ctx,
                                     ConstTensorView x,
                                     const RopeTable& rope,
                                     const BatchView& batch,
                                     const KvLayer& kv,
                                     const AttentionSteps& steps,
                                     TensorView y) const {
  q.forward(ctx, x, steps.q);
  k.forward(ctx, x, steps.k);
  v.forward(ctx, x, steps.v);
  if (!q_norm.empty()) ctx.device.rms_norm_heads(steps.q, q_norm, norm_eps);
  if (!k_norm.empty()) ctx.device.rms_norm_heads(steps.k, k_norm, norm_eps);
  ctx.device.rope_and_store_kv(steps.q, steps.k, steps.v, rope, batch, kv);
  ctx.device.attention(steps.q, kv, heads, batch, steps.attention, window);
  return o.partial(ctx, steps.attention, y);
}
// [end partial]

}  // namespace tp

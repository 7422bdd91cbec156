#include "common/parallel/sharded_attention.h"

namespace tp {

ShardedAttention ShardedAttention::load(const RankContext& ctx,
                                        const WholeAttention& whole,
                                        const HeadShard& heads,
                                        std::int64_t head_dim) {
  const auto rows_of = [&](const WholeLinear& layer, Range of_heads) {
    return ColumnParallelLinear::shard_rows(ctx, layer,
                                            {of_heads.begin * head_dim, of_heads.end * head_dim});
  };
  return {rows_of(whole.q, heads.query), rows_of(whole.k, heads.kv), rows_of(whole.v, heads.kv),
          RowParallelLinear::shard(ctx, whole.o, head_dim), heads};
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
  ctx.device.rope(steps.q, rope, batch.positions);
  ctx.device.rope(steps.k, rope, batch.positions);
  ctx.device.store_kv(steps.k, steps.v, batch.slot_mapping, kv);
  ctx.device.attention(steps.q, kv, heads, batch, steps.attention);
  return o.partial(ctx, steps.attention, y);
}
// [end partial]

}  // namespace tp

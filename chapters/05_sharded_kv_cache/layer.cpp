#include "layer.h"

#include "common/engine/block_manager.h"
#include "common/parallel/shards.h"
#include "story.h"

namespace tp {

namespace {

Range features_of(Range heads) {
  return {heads.begin * kHeadDim, heads.end * kHeadDim};
}

}  // namespace

Inputs make_inputs(const Options& options) {
  const DType dtype = dtype_from_name(options.dtype.empty() ? "f32" : options.dtype);
  auto seed = static_cast<std::uint64_t>(options.seed);
  const auto weight = [&](std::int64_t out, std::int64_t in) {
    return to_tensor(random_matrix(out, in, seed++), dtype);
  };
  Inputs in;
  in.embedding = weight(kVocab, kHidden);
  in.q = weight(kHeads * kHeadDim, kHidden);
  in.k = weight(kKvHeads * kHeadDim, kHidden);
  in.v = weight(kKvHeads * kHeadDim, kHidden);
  in.o = weight(kHidden, kHeads * kHeadDim);
  return in;
}

// [region one_device]
LayerResult run_one_device(const Inputs& in, std::span<const std::int32_t> token_ids) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::int64_t tokens = std::ssize(token_ids);
  Matrix x(tokens, kHidden), q(tokens, kHeads * kHeadDim);
  Matrix k(tokens, kKvHeads * kHeadDim), v(tokens, kKvHeads * kHeadDim);
  LayerResult out{Matrix(tokens, kHeads * kHeadDim), Matrix(tokens, kHidden)};
  device->embed(token_ids, in.embedding, {0, kVocab}, x.view());
  device->matmul(x.view(), in.q, q.view(), SumBlocks::whole(kHidden));
  device->matmul(x.view(), in.k, k.view(), SumBlocks::whole(kHidden));
  device->matmul(x.view(), in.v, v.view(), SumBlocks::whole(kHidden));

  // A contiguous cache is a single block as long as the sequence.
  KvCache cache(*device, {1, kKvHeads, kHeadDim, tokens, 1});
  const BlockTable the_block{0};
  Batch batch(tokens);
  batch.add(the_block, 0, tokens);
  device->store_kv(k.view(), v.view(), batch.view().slot_mapping, cache.layer(0));
  const HeadShard all_heads{{0, kHeads}, {0, kKvHeads}, kHeads / kKvHeads};
  device->attention(q.view(), cache.layer(0), all_heads, batch.view(), out.heads.view());

  device->matmul(out.heads.view(), in.o, out.y.view(),
                 SumBlocks::whole(kHeads * kHeadDim, kHeadDim));
  return out;
}
// [end one_device]

AttentionShard AttentionShard::load(const RankContext& ctx, const Inputs& in) {
  const HeadShard heads = head_shard(kHeads, kKvHeads, ctx.rank, ctx.tp_size);
  return {heads,
          ctx.device.upload(in.embedding, {}, "weights"),
          ColumnParallelLinear::shard_rows(ctx, {in.q}, features_of(heads.query)),
          ColumnParallelLinear::shard_rows(ctx, {in.k}, features_of(heads.kv)),
          ColumnParallelLinear::shard_rows(ctx, {in.v}, features_of(heads.kv)),
          RowParallelLinear::shard(ctx, {in.o}, kHeadDim)};
}

// [region step]
AttentionShard::Output AttentionShard::run(const RankContext& ctx,
                                           const BatchPlan& plan,
                                           const KvLayer& kv) const {
  const auto activations = [&](std::int64_t columns) {
    return ctx.device.allocate({std::ssize(plan.token_ids), columns}, DType::f32, "activations");
  };
  Tensor x = activations(kHidden), q_local = activations(q.out_local());
  Tensor k_local = activations(k.out_local()), v_local = activations(v.out_local());
  Output out{activations(q.out_local()), activations(kHidden)};

  ctx.device.embed(plan.token_ids, embedding, {0, kVocab}, x);
  q.forward(ctx, x, q_local);
  k.forward(ctx, x, k_local);
  v.forward(ctx, x, v_local);

  // The plan says in which slots. Which heads lie there is known to this rank alone.
  ctx.device.store_kv(k_local, v_local, plan.slot_mapping, kv);
  std::vector<SequenceRows> sequences;
  plan.sequence_rows(sequences);
  const BatchView batch{plan.positions, plan.slot_mapping, sequences};
  ctx.device.attention(q_local, kv, heads, batch, out.heads_local);

  o.forward(ctx, out.heads_local, out.y, "o_proj");
  return out;
}
// [end step]

std::vector<Range> head_features(int tp_size) {
  std::vector<Range> features;
  for (const Range heads : shard_ranges(kHeads, tp_size)) features.push_back(features_of(heads));
  return features;
}

}  // namespace tp

#include "decoder_layer.h"

#include "common/parallel/faults.h"
#include "common/parallel/gather_columns.h"
#include "one_device.h"

namespace tp {

namespace {

// The heads whose weights a rank loads; with wrong_kv_map, the KV heads of the next rank, if those
// are as many.
HeadShard heads_to_load(const RankContext& ctx, const LayerSizes& s, const std::string& fault) {
  HeadShard heads = head_shard(s.heads, s.kv_heads, ctx.rank, ctx.tp_size);
  const int next = (ctx.rank + 1) % ctx.tp_size;
  const HeadShard wrong = head_shard(s.heads, s.kv_heads, next, ctx.tp_size);
  if (fault == "wrong_kv_map" && wrong.kv.size() == heads.kv.size()) heads.kv = wrong.kv;
  return heads;
}

// The token ids of the rows of prefill().
std::vector<std::int32_t> token_ids() {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<std::int32_t>((7 * i + 3) % Stack::kVocab));
  return ids;
}

}  // namespace

ShardedAttention load_attention(const RankContext& ctx,
                                const LayerWeights& weights,
                                const std::string& fault) {
  const LayerSizes& s = weights.sizes;
  const Matrix o_bias = scale(weights.o.bias, bias_factor(ctx, fault));
  const WholeAttention whole{
      weights.q.whole(), weights.k.whole(), weights.v.whole(), {weights.o.weight, o_bias.view()}};
  ShardedAttention attention = ShardedAttention::load(row_shard_owner(ctx, fault, s.heads), whole,
                                                      heads_to_load(ctx, s, fault), s.head_dim);
  attention.heads = head_shard(s.heads, s.kv_heads, ctx.rank, ctx.tp_size);  // computed with
  return attention;
}

Tensor activations(const RankContext& ctx, std::int64_t rows, std::int64_t columns) {
  return ctx.device.allocate({rows, columns}, DType::f32, "activations");
}

AttentionBuffers::AttentionBuffers(const RankContext& ctx,
                                   const ShardedAttention& layer,
                                   std::int64_t rows)
    : q(activations(ctx, rows, layer.q_local())),
      k(activations(ctx, rows, layer.kv_local())),
      v(activations(ctx, rows, layer.kv_local())),
      attention(activations(ctx, rows, layer.q_local())) {}

DecoderLayer DecoderLayer::load(const RankContext& ctx,
                                const LayerWeights& weights,
                                const std::string& fault) {
  const auto norm = [&](const Matrix& weight) {
    return ctx.device.upload(weight.view(), DType::f32, "weights");
  };
  const Matrix down_bias = scale(weights.down.bias, bias_factor(ctx, fault));
  return {norm(weights.input_norm),
          norm(weights.post_attention_norm),
          load_attention(ctx, weights, fault),
          {ColumnParallelLinear::shard_fused(ctx, {weights.gate.whole(), weights.up.whole()}),
           RowParallelLinear::shard(row_shard_owner(ctx, fault, weights.sizes.intermediate),
                                    {weights.down.weight, down_bias.view()})}};
}

void DecoderLayer::add_attention(const RankContext& ctx, TensorView x) const {
  const std::int64_t head_dim = attention.q_local() / attention.heads.query.size();
  const RopeTable rope(ctx.device, kLongest, head_dim, kRopeTheta);
  SequenceCache cache(ctx.device, attention.heads.kv.size(), head_dim);
  AttentionBuffers buffers(ctx, attention, x.rows());
  Tensor normed = activations(ctx, x.rows(), x.shape[1]);
  Tensor y = activations(ctx, x.rows(), x.shape[1]);
  const Step step = prefill();

  ctx.device.rms_norm(x, input_norm, kNormEps, normed);
  const PartialSum partial =
      attention.partial(ctx, normed, rope, step.batch.view(), cache.layer(), buffers.steps(), y);
  ctx.device.add(x, attention.o.finish(ctx, partial, "o_proj"));
}

void DecoderLayer::add_mlp(const RankContext& ctx, TensorView x) const {
  Tensor gate_up = activations(ctx, x.rows(), 2 * mlp.intermediate_local());
  Tensor activated = activations(ctx, x.rows(), mlp.intermediate_local());
  Tensor normed = activations(ctx, x.rows(), x.shape[1]);
  Tensor y = activations(ctx, x.rows(), x.shape[1]);

  ctx.device.rms_norm(x, post_attention_norm, kNormEps, normed);
  const PartialSum partial = mlp.partial(ctx, normed, gate_up, activated, y);
  ctx.device.add(x, mlp.down.finish(ctx, partial, "down_proj"));
}

Stack Stack::make(DType dtype, std::uint64_t seed) {
  Stack stack{make_linear(kVocab, kSizes.hidden, dtype, seed).weight,
              {},
              make_norm(kSizes.hidden, seed + 1),
              make_linear(kVocab, kSizes.hidden, dtype, seed + 2)};
  for (std::uint64_t i = 0; i < kLayers; ++i)
    stack.layers.push_back(make_layer(kSizes, dtype, seed + 100 * (i + 1)));
  return stack;
}

Matrix Stack::on_one_device() const {
  const std::unique_ptr<Device> device = make_cpu_device();
  Matrix x(kTokens, kSizes.hidden), logits(kTokens, kVocab);
  device->embed(token_ids(), embedding, {0, kVocab}, x.view());
  for (const LayerWeights& layer : layers) x = layer_on_one_device(layer, x).output;
  device->rms_norm(x.view(), norm.view(), kNormEps, x.view());
  device->matmul(x.view(), head.weight, logits.view(), SumBlocks::whole(x.cols));
  device->add_bias(logits.view(), head.bias.view());
  return logits;
}

void Stack::on_each_rank(const RankContext& ctx, RankOutput& out, const std::string& fault) const {
  const std::vector<Range> vocab = shard_ranges(kVocab, ctx.tp_size);
  const Range mine = vocab[static_cast<std::size_t>(ctx.rank)];
  const Tensor rows = ctx.device.upload(embedding.view().rows_in(mine), {}, "weights");
  const Tensor last_norm = ctx.device.upload(norm.view(), DType::f32, "weights");
  const auto logits_layer = ColumnParallelLinear::shard(ctx, head.whole());
  Tensor x = activations(ctx, kTokens, kSizes.hidden);
  Tensor logits_local = activations(ctx, kTokens, mine.size()),
         logits = activations(ctx, kTokens, kVocab);
  Tensor staging =
      ctx.device.allocate(gather_staging_shape(kTokens, vocab), DType::f32, "activations");

  ctx.device.embed(token_ids(), rows, mine, x);  // zeros where another rank has the row
  ctx.comm.all_reduce(x, "embedding");
  for (const LayerWeights& weights : layers) {
    const DecoderLayer layer = DecoderLayer::load(ctx, weights, fault);
    layer.add_attention(ctx, x);
    layer.add_mlp(ctx, x);
  }
  ctx.device.rms_norm(x, last_norm, kNormEps, x);
  logits_layer.forward(ctx, x, logits_local);
  gather_columns(ctx, logits_local, vocab, 0, staging, logits, "logits");
  if (ctx.rank == 0) out.keep("logits", logits);
}

}  // namespace tp

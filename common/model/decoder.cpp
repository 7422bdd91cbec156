#include "common/model/decoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/parallel/gather_columns.h"

namespace tp {

namespace {

// The first rows of an activation buffer.
TensorView first(Tensor& buffer, std::int64_t rows) {
  return buffer.view().rows_in({0, rows});
}

}  // namespace

DecoderShard DecoderShard::of(const ModelConfig& config, int rank, int tp_size) {
  const HeadShard heads =
      head_shard(config.num_attention_heads, config.num_key_value_heads, rank, tp_size);
  return {heads, heads.kv, vocab_shard(config.vocab_size, rank, tp_size), rank};
}

Decoder::Decoder(const RankContext& ctx,
                 const ModelConfig& config,
                 const Weights& weights,
                 const DecoderShard& shard,
                 const DecoderLimits& limits)
    : config_(config),
      shard_(shard),
      limits_(limits),
      embedding_(
          VocabParallelTable::load(ctx, weights.embedding(), shard.vocab, weights.store_as())),
      final_norm_(ctx.device.upload(weights.final_norm(), weights.store_as(), "weights")),
      rope_(ctx.device, limits.max_model_len, config.head_dim, config.rope) {
  if (!weights.tied())
    head_ = VocabParallelTable::load(ctx, weights.head(), shard.vocab, weights.store_as());
  const RankContext row_owner{shard.row_part, ctx.tp_size, ctx.device, ctx.comm, ctx.group};
  HeadShard loaded = shard.heads;  // of the weights; computed is with shard.heads
  loaded.kv = shard.kv_loaded;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto linear = [&](const char* module) { return weights.linear(i, module); };
    const auto norm = [&](const char* module) {
      return ctx.device.upload(weights.norm(i, module), weights.store_as(), "weights");
    };
    const std::string name = fmt::format("layer {}", i);
    WholeAttention whole{linear("self_attn.q_proj"), linear("self_attn.k_proj"),
                         linear("self_attn.v_proj"), linear("self_attn.o_proj")};
    if (config.qk_norm) {
      whole.q_norm = weights.norm(i, "self_attn.q_norm");
      whole.k_norm = weights.norm(i, "self_attn.k_norm");
      whole.norm_eps = static_cast<float>(config.rms_norm_eps);
    }
    whole.window = config.sliding_window(i);
    ShardedAttention attention = ShardedAttention::load(row_owner, whole, loaded, config.head_dim);
    attention.heads = shard.heads;
    layers_.push_back(
        {norm("input_layernorm"),
         norm("post_attention_layernorm"),
         std::move(attention),
         {ColumnParallelLinear::shard_fused(ctx, {linear("mlp.gate_proj"), linear("mlp.up_proj")}),
          RowParallelLinear::shard(row_owner, linear("mlp.down_proj")), Activation::silu},
         name,
         name + " o_proj",
         name + " down_proj"});
  }
  logit_ranges_ = embedding_.valid_ranges(ctx.tp_size);
  allocate_activations(ctx);
  reserve_workspace(ctx);
  if (limits.num_blocks > 0) make_kv_cache(ctx, limits.num_blocks);
}

void Decoder::make_kv_cache(const RankContext& ctx, std::int64_t num_blocks) {
  limits_.num_blocks = num_blocks;
  kv_.emplace(ctx.device,
              KvLayout{config_.num_hidden_layers, shard_.heads.kv.size(), config_.head_dim,
                       limits_.block_size, num_blocks, limits_.kv_dtype});
}

void Decoder::reserve_workspace(const RankContext& ctx) {
  const std::int64_t widest =
      std::max({config_.hidden_size, act_.attention.shape()[1], act_.activated.shape()[1]});
  ctx.device.reserve({.rows = limits_.max_num_batched_tokens,
                      .context_tokens = limits_.max_model_len,
                      .block_size = limits_.block_size,
                      .input_features = widest,
                      .query_heads = shard_.heads.query.size(),
                      .head_dim = config_.head_dim,
                      .logit_rows = limits_.max_logit_rows,
                      .logit_columns = config_.vocab_size});
}

void Decoder::allocate_activations(const RankContext& ctx) {
  const std::int64_t tokens = limits_.max_num_batched_tokens, rows = limits_.max_logit_rows;
  const auto allocate = [&](const Shape& shape) {
    return ctx.device.allocate(shape, DType::f32, "activations");
  };
  act_.x = allocate({tokens, config_.hidden_size});
  act_.normed = allocate({tokens, config_.hidden_size});
  act_.projected = allocate({tokens, config_.hidden_size});
  act_.q = allocate({tokens, shard_.heads.query.size() * config_.head_dim});
  act_.attention = allocate(act_.q.shape());
  act_.k = allocate({tokens, shard_.heads.kv.size() * config_.head_dim});
  act_.v = allocate(act_.k.shape());
  const std::int64_t intermediate = layers_.at(0).mlp.intermediate_local();
  act_.gate_up = allocate({tokens, 2 * intermediate});
  act_.activated = allocate({tokens, intermediate});
  act_.last = allocate({rows, config_.hidden_size});
  act_.logits_local = allocate({rows, shard_.vocab.rows.size()});
  act_.staging = allocate(gather_staging_shape(rows, logit_ranges_));
  if (ctx.rank == 0) act_.logits = allocate({rows, logit_ranges_.back().end});
}

ConstTensorView Decoder::forward(const RankContext& ctx,
                                 const DecoderInput& input,
                                 const Tap& tap) {
  const std::int64_t tokens = input.batch.rows(), logit_rows = std::ssize(input.logit_rows);
  if (tokens > limits_.max_num_batched_tokens || logit_rows > limits_.max_logit_rows)
    throw Error(
        ErrorKind::rank,
        fmt::format(
            "decoder: {} tokens and {} rows of logits in one step; the limits are {} and {}",
            tokens, logit_rows, limits_.max_num_batched_tokens, limits_.max_logit_rows));
  const TensorView x = first(act_.x, tokens);
  embedding_.embed(ctx, input.token_ids, x, "embedding");
  if (tap) tap("embedding", x);
  const float eps = static_cast<float>(config_.rms_norm_eps);
  ctx.device.rms_norm(x, layers_.front().input_norm, eps, first(act_.normed, tokens));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    attention_block(ctx, layer, static_cast<std::int64_t>(i), input.batch, tap);
    add_and_norm(ctx, tokens, &layer.post_attention_norm);
    mlp_block(ctx, layer, tokens, tap);
    add_and_norm(ctx, tokens, i + 1 < layers_.size() ? &layers_[i + 1].input_norm : nullptr);
    if (tap) tap(layer.name + " output", x);
  }
  if (logit_rows == 0) return {};
  const TensorView last = first(act_.last, logit_rows);
  ctx.device.select_rows(x, input.logit_rows, last);
  ctx.device.rms_norm(last, final_norm_, eps, last);
  if (tap) tap("final norm", last);
  const ConstTensorView logits = gather_logits(ctx, last);
  if (tap && ctx.rank == 0) tap("logits", logits);
  return logits;
}

void Decoder::attention_block(const RankContext& ctx,
                              Layer& layer,
                              std::int64_t index,
                              const BatchView& batch,
                              const Tap& tap) {
  const std::int64_t tokens = batch.rows();
  const TensorView normed = first(act_.normed, tokens), projected = first(act_.projected, tokens);
  const AttentionSteps steps{first(act_.q, tokens), first(act_.k, tokens), first(act_.v, tokens),
                             first(act_.attention, tokens)};
  // [region attention_block]
  const PartialSum partial =
      layer.attention.partial(ctx, normed, rope_, batch, kv_->layer(index), steps, projected);
  layer.attention.o.finish(ctx, partial, layer.o_label);
  // [end attention_block]
  if (tap) {
    tap(layer.name + " q", steps.q);
    tap(layer.name + " k", steps.k);
    tap(layer.name + " v", steps.v);
    tap(layer.name + " attention", steps.attention);
    tap(layer.name + " o_proj sum", projected);
  }
}

void Decoder::mlp_block(const RankContext& ctx, Layer& layer, std::int64_t tokens, const Tap& tap) {
  const TensorView normed = first(act_.normed, tokens), projected = first(act_.projected, tokens);
  const PartialSum partial = layer.mlp.partial(ctx, normed, first(act_.gate_up, tokens),
                                               first(act_.activated, tokens), projected);
  layer.mlp.down.finish(ctx, partial, layer.down_label);
  if (tap) tap(layer.name + " down_proj sum", projected);
}

void Decoder::add_and_norm(const RankContext& ctx, std::int64_t tokens, const Tensor* next_norm) {
  const TensorView x = first(act_.x, tokens), projected = first(act_.projected, tokens);
  if (next_norm == nullptr) return ctx.device.add(x, projected);
  ctx.device.add_rms_norm(x, projected, *next_norm, static_cast<float>(config_.rms_norm_eps),
                          first(act_.normed, tokens));
}

ConstTensorView Decoder::gather_logits(const RankContext& ctx, ConstTensorView hidden) {
  const TensorView local = first(act_.logits_local, hidden.rows());
  const VocabParallelTable& head = head_.rows_local.empty() ? embedding_ : head_;
  head.logits(ctx, hidden, local);
  const Range mine = logit_ranges_[static_cast<std::size_t>(ctx.rank)];
  const bool root = ctx.rank == 0;
  const TensorView logits = root ? first(act_.logits, hidden.rows()) : TensorView{};
  TensorView staging = act_.staging;
  staging.shape = gather_staging_shape(hidden.rows(), logit_ranges_);
  staging.row_stride = staging.shape.row_elements();
  gather_columns(ctx, local.columns_in({0, mine.size()}), logit_ranges_, 0, staging, logits,
                 "logits");
  return logits;
}

}  // namespace tp

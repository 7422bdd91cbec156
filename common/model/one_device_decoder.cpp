#include "common/model/one_device_decoder.h"

#include <fmt/format.h>

namespace tp {

OneDeviceDecoder::OneDeviceDecoder(const ModelConfig& config,
                                   const Weights& weights,
                                   std::int64_t max_tokens,
                                   const GpuRounding& rounding)
    : config_(config),
      weights_(weights),
      rounding_(rounding),
      device_(make_cpu_device()),
      rope_(*device_, max_tokens, config.head_dim, config.rope),
      kv_(*device_,
          {config.num_hidden_layers, config.num_key_value_heads, config.head_dim, max_tokens, 1}) {}

Tensor OneDeviceDecoder::forward(std::span<const std::int32_t> ids,
                                 std::int64_t first_position,
                                 std::int64_t logit_rows,
                                 const Tap& tap) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const auto show = [&](const std::string& name, ConstTensorView output) {
    if (tap) tap(name, output);
  };
  const HeadShard all_heads{{0, config_.num_attention_heads},
                            {0, config_.num_key_value_heads},
                            config_.num_attention_heads / config_.num_key_value_heads};
  const std::int32_t only_block[] = {0};
  Batch rows(kv_.layout().block_size);
  rows.add(only_block, first_position, tokens);
  const BatchView batch = rows.view();
  Tensor x = device_->allocate({tokens, config_.hidden_size}, DType::f32, "activations");
  device_->embed(ids, stored(weights_.embedding()), {0, config_.vocab_size}, x);
  show("embedding", x);

  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("layer {}", i);
    const Tensor attention_in = norm(x, weights_.norm(i, "input_layernorm"));
    Tensor q = linear(attention_in, weights_.linear(i, "self_attn.q_proj"));
    Tensor k = linear(attention_in, weights_.linear(i, "self_attn.k_proj"));
    const Tensor v = linear(attention_in, weights_.linear(i, "self_attn.v_proj"));
    if (config_.qk_norm) {
      norm_heads(q, weights_.norm(i, "self_attn.q_norm"));
      norm_heads(k, weights_.norm(i, "self_attn.k_norm"));
    }
    device_->rope(q, rope_, batch.positions);
    device_->rope(k, rope_, batch.positions);
    show(layer + " q", q);
    show(layer + " k", k);
    show(layer + " v", v);
    Tensor attention = device_->allocate(q.shape(), DType::f32, "activations");
    Tensor rounded_k, rounded_v;
    device_->store_kv(rounded(k, rounding_.kv, rounded_k), rounded(v, rounding_.kv, rounded_v),
                      batch.slot_mapping, kv_.layer(i));
    device_->attention(q, kv_.layer(i), all_heads, batch, attention, config_.sliding_window(i));
    show(layer + " attention", attention);
    const Tensor o = linear(attention, weights_.linear(i, "self_attn.o_proj"), config_.head_dim);
    show(layer + " o_proj sum", o);
    device_->add(x, o);

    const Tensor mlp_in = norm(x, weights_.norm(i, "post_attention_layernorm"));
    Tensor gate = linear(mlp_in, weights_.linear(i, "mlp.gate_proj"));
    const Tensor up = linear(mlp_in, weights_.linear(i, "mlp.up_proj"));
    device_->gated_activation(gate, up, gate, Activation::silu);
    const Tensor down = linear(gate, weights_.linear(i, "mlp.down_proj"));
    show(layer + " down_proj sum", down);
    device_->add(x, down);
    show(layer + " output", x);
  }

  const Tensor last = norm(x.view().rows_in({tokens - logit_rows, tokens}), weights_.final_norm());
  show("final norm", last);
  Tensor logits = linear(last, {weights_.head()});
  show("logits", logits);
  return logits;
}

ConstTensorView OneDeviceDecoder::stored(ConstTensorView weight) {
  const std::optional<DType> asked = weights_.store_as();
  const DType dtype = device_->storage_dtype(weight.dtype, asked);
  if (dtype == weight.dtype && weight.aligned() && dtype != DType::f16) return weight;
  Tensor& copy = converted_[weight.data];
  if (!copy.empty()) return copy;
  copy = device_->upload(weight, dtype, "weights");
  // Rounded as the ranks store it, and widened to what the CPU computes with fast.
  if (dtype == DType::f16) copy = device_->upload(copy, DType::f32, "weights");
  return copy;
}

// The input features are summed in units, so that the order is the one of ranks that split whole
// heads.
Tensor OneDeviceDecoder::linear(ConstTensorView x, const WholeLinear& layer, std::int64_t unit) {
  Tensor y = device_->allocate({x.rows(), layer.weight.rows()}, DType::f32, "activations");
  const DType of_weight = weights_.store_as().value_or(layer.weight.dtype);
  Tensor rounded_x;
  device_->matmul(rounded(x, rounding_.activations ? of_weight : DType::f32, rounded_x),
                  stored(layer.weight), y, SumBlocks::whole(x.shape[1], unit));
  if (layer.bias.data != nullptr) device_->add_bias(y, stored(layer.bias));
  return y;
}

ConstTensorView OneDeviceDecoder::rounded(ConstTensorView x, DType dtype, Tensor& copy) {
  if (dtype == DType::f32) return x;
  Tensor narrow = device_->allocate(x.shape, dtype, "activations");
  copy_host(x, narrow);
  copy = device_->allocate(x.shape, DType::f32, "activations");
  copy_host(narrow, copy);
  return copy;
}

Tensor OneDeviceDecoder::norm(ConstTensorView x, ConstTensorView weight) {
  Tensor y = device_->allocate(x.shape, DType::f32, "activations");
  device_->rms_norm(x, stored(weight), static_cast<float>(config_.rms_norm_eps), y);
  return y;
}

void OneDeviceDecoder::norm_heads(TensorView x, ConstTensorView weight) {
  device_->rms_norm_heads(x, stored(weight), static_cast<float>(config_.rms_norm_eps));
}

}  // namespace tp

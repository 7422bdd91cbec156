#include "one_device.h"

#include "sequences.h"

namespace tp {

namespace {

// The input features are summed in units: o_proj in whole heads, as ranks that split heads do.
Matrix linear(Device& device, const Matrix& x, const StoredLinear& layer, std::int64_t unit = 1) {
  Matrix y(x.rows, layer.bias.cols);
  device.matmul(x.view(), layer.weight, y.view(), SumBlocks::whole(x.cols, unit));
  device.add_bias(y.view(), layer.bias.view());
  return y;
}

Matrix norm(Device& device, const Matrix& x, const Matrix& weight) {
  Matrix y(x.rows, x.cols);
  device.rms_norm(x.view(), weight.view(), kNormEps, y.view());
  return y;
}

}  // namespace

// [region one_device]
OneDeviceAttention attention_on_one_device(const LayerWeights& weights, const Matrix& x) {
  const LayerSizes& s = weights.sizes;
  const std::unique_ptr<Device> device = make_cpu_device();
  const RopeTable rope(*device, kLongest, s.head_dim, kRopeTheta);
  SequenceCache cache(*device, s.kv_heads, s.head_dim);
  const HeadShard all_heads{{0, s.heads}, {0, s.kv_heads}, s.heads / s.kv_heads};
  const Step step = prefill();
  const BatchView batch = step.batch.view();

  Matrix q = linear(*device, x, weights.q);
  Matrix k = linear(*device, x, weights.k);
  const Matrix v = linear(*device, x, weights.v);
  device->rope(q.view(), rope, batch.positions);
  device->rope(k.view(), rope, batch.positions);
  device->store_kv(k.view(), v.view(), batch.slot_mapping, cache.layer());
  Matrix attention(x.rows, s.q_size());
  device->attention(q.view(), cache.layer(), all_heads, batch, attention.view());
  Matrix y = linear(*device, attention, weights.o, s.head_dim);
  return {q, k, v, attention, y};
}
// [end one_device]

OneDeviceLayer layer_on_one_device(const LayerWeights& weights, const Matrix& x) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const Matrix normed = norm(*device, x, weights.input_norm);
  const Matrix after = add(x, attention_on_one_device(weights, normed).y);

  const Matrix mlp_in = norm(*device, after, weights.post_attention_norm);
  Matrix h = linear(*device, mlp_in, weights.gate);
  const Matrix up = linear(*device, mlp_in, weights.up);
  device->gated_activation(h.view(), up.view(), h.view(), Activation::silu);
  return {after, add(after, linear(*device, h, weights.down))};
}

}  // namespace tp

// The CPU device: the sums run in vector kernels, everything else is the reference itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "common/device/cpu/kernels.h"
#include "common/device/device.h"
#include "common/device/reference_ops.h"

namespace tp {

namespace {

class CpuDevice final : public Device {
 private:
  Place place() const override { return Place::host; }

  Buffer do_allocate(std::int64_t bytes) override {
    constexpr std::align_val_t kCacheLine{64};
    const auto size = static_cast<std::size_t>(bytes);
    auto* data = static_cast<std::byte*>(::operator new(size, kCacheLine));
    std::memset(data, 0, size);
    return {data, [](std::byte* p) { ::operator delete(p, kCacheLine); }};
  }

  void do_matmul(ConstTensorView x, ConstTensorView w, TensorView y, const SumBlocks& b) override {
    if (b.count == 0) return reference::matmul(x, w, y, b);  // no input features: zeros
    kernels_.matmul({x.row<float>(0), x.row_stride, w.data, w.dtype == DType::bf16, w.row_stride,
                     y.row<float>(0), y.row_stride, x.rows(), w.rows(), b.edge.data(), b.count});
  }

  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) override {
    reference::rms_norm(x, weight, eps, y);
  }

  void do_attention(ConstTensorView q,
                    const KvView& kv,
                    const HeadShard& heads,
                    std::int64_t first_position,
                    TensorView y) override {
    const std::int64_t head_dim = kv.keys.shape[2];
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    scores_.resize(static_cast<std::size_t>(kv.keys.shape[1]));  // allocates in the first call only
    for (std::int64_t m = 0; m < q.rows(); ++m) {
      const std::int64_t context = first_position + m + 1;
      for (std::int64_t head = 0; head < heads.query.size(); ++head) {
        const float* keys = kv.keys.row<float>(heads.kv_local(head));
        const float* values = kv.values.row<float>(heads.kv_local(head));
        attend(q.row<float>(m) + head * head_dim, keys, values, context, head_dim, scale,
               y.row<float>(m) + head * head_dim);
      }
    }
  }

  // One query head of one token: softmax(q K^T * scale) V over `context` tokens.
  void attend(const float* query,
              const float* keys,
              const float* values,
              std::int64_t context,
              std::int64_t head_dim,
              float scale,
              float* out) {
    float* weights = scores_.data();
    for (std::int64_t t = 0; t < context; ++t)
      weights[t] = kernels_.dot(query, keys + t * head_dim, head_dim) * scale;
    const float largest = *std::max_element(weights, weights + context);
    float sum = 0;
    for (std::int64_t t = 0; t < context; ++t) sum += weights[t] = std::exp(weights[t] - largest);
    std::fill_n(out, head_dim, 0.0f);
    for (std::int64_t t = 0; t < context; ++t)
      kernels_.add_scaled(weights[t], values + t * head_dim, out, head_dim);
    for (std::int64_t i = 0; i < head_dim; ++i) out[i] /= sum;
  }

  void do_add_bias(TensorView x, ConstTensorView bias) override { reference::add_bias(x, bias); }
  void do_add(TensorView x, ConstTensorView y) override { reference::add(x, y); }
  void do_gated_activation(ConstTensorView gate,
                           ConstTensorView up,
                           TensorView y,
                           Activation act) override {
    reference::gated_activation(gate, up, y, act);
  }
  void do_activate(TensorView x, Activation act) override { reference::activate(x, act); }
  void do_embed(std::span<const std::int32_t> ids,
                ConstTensorView table,
                Range rows,
                TensorView y) override {
    reference::embed(ids, table, rows, y);
  }
  void do_rope(TensorView x, const RopeTable& table, std::int64_t first_position) override {
    reference::rope(x, table, first_position);
  }
  void do_store_kv(ConstTensorView keys,
                   ConstTensorView values,
                   std::int64_t first_position,
                   const KvView& kv) override {
    reference::store_kv(keys, values, first_position, kv);
  }

  const cpu::Kernels& kernels_ = *cpu::usable_kernels().variants[cpu::usable_kernels().count - 1];
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace tp

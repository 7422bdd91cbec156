// The CPU device: the sums run in vector kernels, everything else is the reference itself.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <vector>

#include "common/device/cpu/kernels.h"
#include "common/device/device.h"
#include "common/device/reference_ops.h"

namespace tp {

namespace {

constexpr std::int64_t kLargeBytes = std::int64_t{16} << 20;

class CpuDevice final : public Device {
 private:
  Place place() const override { return Place::host; }

  Buffer do_allocate(std::int64_t bytes) override {
    constexpr std::align_val_t kCacheLine{64};
    const auto size = static_cast<std::size_t>(bytes);
    if (bytes >= kLargeBytes) return allocate_untouched(size);
    auto* data = static_cast<std::byte*>(::operator new(size, kCacheLine));
    std::memset(data, 0, size);
    return {data, [](std::byte* p) { ::operator delete(p, kCacheLine); }};
  }

  // Large zeroed memory comes from the system page by page, when a page is first touched: the part
  // of a KV cache that no token uses costs nothing.
  static Buffer allocate_untouched(std::size_t size) {
    constexpr std::size_t kCacheLine = 64;
    void* const memory = std::calloc(size + kCacheLine, 1);
    if (memory == nullptr) throw std::bad_alloc();
    void* data = memory;
    std::size_t room = size + kCacheLine;
    std::align(kCacheLine, size, data, room);
    return {static_cast<std::byte*>(data), [memory](std::byte*) { std::free(memory); }};
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
                    const KvLayer& kv,
                    const HeadShard& heads,
                    const BatchView& batch,
                    TensorView y) override {
    const std::int64_t head_dim = kv.head_dim();
    for (const SequenceRows& sequence : batch.sequences) {
      for (std::int64_t m = sequence.rows.begin; m < sequence.rows.end; ++m) {
        const std::int64_t context = sequence.first_position + m - sequence.rows.begin + 1;
        for (std::int64_t head = 0; head < heads.query.size(); ++head)
          attend(q.row<float>(m) + head * head_dim, kv, heads.kv_local(head), sequence.block_table,
                 context, y.row<float>(m) + head * head_dim);
      }
    }
  }

  // One query head of one token: softmax(q K^T / sqrt(head_dim)) V over `context` tokens, block by
  // block.
  void attend(const float* query,
              const KvLayer& kv,
              std::int64_t kv_head,
              std::span<const std::int32_t> block_table,
              std::int64_t context,
              float* out) {
    const std::int64_t head_dim = kv.head_dim(), block_size = kv.block_size();
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    // Grows with the longest context that was met; steps after that allocate nothing.
    if (std::ssize(scores_) < context) scores_.resize(static_cast<std::size_t>(context));
    float* const weights = scores_.data();
    // Calls use(t, row of token t) for all tokens, in order.
    const auto for_each_token = [&](ConstTensorView pool, const auto& use) {
      for (std::int64_t first = 0; first < context; first += block_size) {
        const std::int32_t block = block_table[static_cast<std::size_t>(first / block_size)];
        const float* row = pool.row<float>(block) + kv_head * block_size * head_dim;
        const std::int64_t end = std::min(first + block_size, context);
        for (std::int64_t t = first; t < end; ++t, row += head_dim) use(t, row);
      }
    };
    for_each_token(kv.keys, [&](std::int64_t t, const float* key) {
      weights[t] = kernels_.dot(query, key, head_dim) * scale;
    });
    const float largest = *std::max_element(weights, weights + context);
    float sum = 0;
    for (std::int64_t t = 0; t < context; ++t) sum += weights[t] = std::exp(weights[t] - largest);
    std::fill_n(out, head_dim, 0.0f);
    for_each_token(kv.values, [&](std::int64_t t, const float* value) {
      kernels_.add_scaled(weights[t], value, out, head_dim);
    });
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
  void do_select_rows(ConstTensorView x,
                      std::span<const std::int32_t> rows,
                      TensorView y) override {
    reference::select_rows(x, rows, y);
  }
  void do_rope(TensorView x,
               const RopeTable& table,
               std::span<const std::int32_t> positions) override {
    reference::rope(x, table, positions);
  }
  void do_store_kv(ConstTensorView keys,
                   ConstTensorView values,
                   std::span<const std::int32_t> slot_mapping,
                   const KvLayer& kv) override {
    reference::store_kv(keys, values, slot_mapping, kv);
  }

  const cpu::Kernels& kernels_ = *cpu::usable_kernels().variants[cpu::usable_kernels().count - 1];
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace tp

// The CPU device: the sums run in vector kernels, everything else is the reference itself.
#include <sys/mman.h>
#include <unistd.h>

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

constexpr std::size_t kHugePage = std::size_t{2} << 20;

class CpuDevice final : public Device {
 private:
  Place place() const override { return Place::host; }
  bool computes_with(DType dtype) const override { return dtype != DType::i32; }
  // f16 has no kernel, only the reference: a weight in it is widened, once, unless it was asked for.
  DType dtype_to_keep(DType stored) const override {
    return stored == DType::f16 ? DType::f32 : stored;
  }

  std::int64_t free_bytes() const override {
    return static_cast<std::int64_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  }

  Buffer do_allocate(std::int64_t bytes) override {
    constexpr std::align_val_t kCacheLine{64};
    const auto size = static_cast<std::size_t>(bytes);
    if (size >= kHugePage) return map_memory(size);
    auto* data = static_cast<std::byte*>(::operator new(size, kCacheLine));
    std::memset(data, 0, size);
    return {data, [](std::byte* p) { ::operator delete(p, kCacheLine); }};
  }

  // Zeroed memory straight from the system, which gives a page when it is first touched: the part
  // of a KV cache that no token uses costs nothing, and a weight is written once, not zeroed first.
  // It begins with a huge page, and ends where it ends: what is mapped to align it goes back.
  static Buffer map_memory(std::size_t size) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (size + page - 1) / page * page;
    const std::size_t room = bytes + kHugePage;
    void* const memory =
        ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    void* begin = memory;
    std::size_t left = room;
    auto* const data = static_cast<std::byte*>(std::align(kHugePage, bytes, begin, left));
    if (left < room) ::munmap(memory, room - left);
    if (left > bytes) ::munmap(data + bytes, left - bytes);
    return {data, [bytes](std::byte* p) { ::munmap(p, bytes); }};
  }

  // Memory that is about to be written whole may as well come in huge pages: there are fewer of
  // them to get now and to find later. A system that has none refuses, which does not matter.
  static void prefer_huge_pages(TensorView mine) {
    const auto begin = reinterpret_cast<std::uintptr_t>(mine.data);
    const std::uintptr_t end = begin + static_cast<std::uintptr_t>(mine.bytes());
    const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
    const std::uintptr_t last = end / kHugePage * kHugePage;
    if (first < last) ::madvise(mine.data + (first - begin), last - first, MADV_HUGEPAGE);
  }

  CopyFindings do_write(ConstTensorView host, TensorView mine) override {
    if (mine.contiguous()) prefer_huge_pages(mine);
    return copy_host(host, mine);
  }

  void do_download(ConstTensorView mine, TensorView host) override { copy_host(mine, host); }

  void do_copy(ConstTensorView from, TensorView to) override { copy_host(from, to); }

  void do_matmul(ConstTensorView x, ConstTensorView w, TensorView y, const SumBlocks& b) override {
    if (b.count == 0 || w.dtype == DType::f16) return reference::matmul(x, w, y, b);
    kernels_.matmul({x.row<float>(0), x.row_stride, w.data, w.dtype == DType::bf16, w.row_stride,
                     y.row<float>(0), y.row_stride, x.rows(), w.rows(), b.edge.data(), b.count});
  }

  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) override {
    reference::rms_norm(x, weight, eps, y);
  }

  void do_add_rms_norm(TensorView x,
                       ConstTensorView delta,
                       ConstTensorView weight,
                       float eps,
                       TensorView y) override {
    reference::add(x, delta);
    reference::rms_norm(x, weight, eps, y);
  }

  void do_rms_norm_heads(TensorView x, ConstTensorView weight, float eps) override {
    reference::rms_norm_heads(x, weight, eps);
  }

  void do_attention(ConstTensorView q,
                    const KvLayer& kv,
                    const HeadShard& heads,
                    const BatchView& batch,
                    TensorView y,
                    std::int64_t window) override {
    const std::int64_t head_dim = kv.head_dim();
    for (const SequenceRows& sequence : batch.sequences) {
      for (std::int64_t m = sequence.rows.begin; m < sequence.rows.end; ++m) {
        const std::int64_t position = sequence.first_position + m - sequence.rows.begin;
        const Range seen = attended_positions(position, window);
        for (std::int64_t head = 0; head < heads.query.size(); ++head)
          attend(q.row<float>(m) + head * head_dim, kv, heads.kv_local(head), sequence.block_table,
                 seen, y.row<float>(m) + head * head_dim);
      }
    }
  }

  // One query head of one token: softmax(q K^T / sqrt(head_dim)) V over the tokens at the positions
  // `seen`, block by block.
  void attend(const float* query,
              const KvLayer& kv,
              std::int64_t kv_head,
              std::span<const std::int32_t> block_table,
              Range seen,
              float* out) {
    const std::int64_t head_dim = kv.head_dim(), block_size = kv.block_size();
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    reserve_scores(blocks_for(seen.size(), block_size) * block_size);
    float* const weights = scores_.row<float>(0);
    // Calls use(i, row of token seen.begin + i) for all tokens, in order.
    const auto for_each_token = [&](ConstTensorView pool, const auto& use) {
      for (std::int64_t t = seen.begin; t < seen.end;) {
        const std::int64_t place = t % block_size;
        const std::int32_t block = block_table[static_cast<std::size_t>(t / block_size)];
        const float* row = pool.row<float>(block) + (kv_head * block_size + place) * head_dim;
        const std::int64_t end = std::min(t - place + block_size, seen.end);
        for (; t < end; ++t, row += head_dim) use(t - seen.begin, row);
      }
    };
    for_each_token(kv.keys, [&](std::int64_t i, const float* key) {
      weights[i] = kernels_.dot(query, key, head_dim) * scale;
    });
    const float largest = *std::max_element(weights, weights + seen.size());
    float sum = 0;
    for (std::int64_t i = 0; i < seen.size(); ++i)
      sum += weights[i] = std::exp(weights[i] - largest);
    std::fill_n(out, head_dim, 0.0f);
    for_each_token(kv.values, [&](std::int64_t i, const float* value) {
      kernels_.add_scaled(weights[i], value, out, head_dim);
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
  void do_rope_and_store_kv(TensorView q,
                            TensorView k,
                            ConstTensorView v,
                            const RopeTable& table,
                            const BatchView& batch,
                            const KvLayer& kv) override {
    reference::rope(q, table, batch.positions);
    reference::rope(k, table, batch.positions);
    reference::store_kv(k, v, batch.slot_mapping, kv);
  }
  void do_row_argmax(ConstTensorView x, std::span<std::int32_t> columns) override {
    reference::row_argmax(x, columns);
  }
  void do_row_top_k(ConstTensorView x,
                    std::int64_t k,
                    std::span<std::int32_t> columns,
                    std::span<float> values) override {
    reference::row_top_k(x, k, columns, values);
  }

  // Grows with the longest context that was met; steps after that allocate nothing.
  void reserve_scores(std::int64_t tokens) {
    if (!scores_.empty() && scores_.shape()[1] >= tokens) return;
    scores_ = Tensor();  // the two need not be there together
    scores_ = allocate({1, tokens}, DType::f32, "workspace");
  }

  const cpu::Kernels& kernels_ = *cpu::usable_kernels().variants[cpu::usable_kernels().count - 1];
  Tensor scores_;  // of one query and the tokens that it sees
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace tp

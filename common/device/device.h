// A device: where one rank's tensors live, and who computes on them. [introduced in chapter 01]
//
// The public functions check shapes, once for all devices; the private virtual ones do the
// arithmetic. What each operation computes, in plain loops, stands in reference_ops.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/core/tensor.h"
#include "common/device/batch.h"
#include "common/device/head_shard.h"
#include "common/device/memory.h"
#include "common/device/rope_table.h"
#include "common/device/sum_blocks.h"

namespace tp {

enum class Activation : std::uint8_t {
  silu,  // x / (1 + e^-x)
  gelu,  // x * (1 + erf(x / sqrt 2)) / 2, the exact form
};

// The dtype in which a device keeps a weight that a file stores in another: what was asked for,
// else as it is. f16 becomes f32, since no device computes with it.
DType storage_dtype(DType stored, std::optional<DType> asked);

// One rank owns one device and calls it from one thread. Activations are f32; weights, biases and
// norm weights are f32 or bf16 and widened exactly where they are used.
// Errors: tp::Error if shapes or dtypes do not fit; the message names both sides.
class Device {
 public:
  Device() : memory_(std::make_shared<MemoryCounter>()) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // A tensor of zeros. Its bytes count under `tag` until it is destroyed.
  Tensor allocate(const Shape& shape, DType dtype, const std::string& tag);
  const MemoryCounter& memory() const { return *memory_; }

  // Copies a tensor of the host to this device, converting the dtype where it differs, and counts
  // the bytes read. Shapes: equal.
  // Errors: tp::Error (input) if a finite value would become infinite.
  void upload(ConstTensorView host, TensorView mine);
  // allocate and upload. Without a dtype the tensor is stored as it is (f16 as f32).
  Tensor upload(ConstTensorView host, std::optional<DType> store_as, const std::string& tag);

  // Is told of every upload, after the copy, with what the copy met. It may throw. [chapter 06]
  using UploadObserver = std::function<void(ConstTensorView host, const CopyFindings& findings)>;
  void observe_uploads(UploadObserver observer) { upload_observer_ = std::move(observer); }

  // y = x W^T. The sum over the input features is done block by block, then as a tree.
  // Shapes: x [M, K] f32, weight [N, K], y [M, N] f32; blocks cover K. Rows may be strided.
  void matmul(ConstTensorView x, ConstTensorView weight, TensorView y, const SumBlocks& blocks);

  // x += bias in every row. Shapes: x [M, N] f32, bias [N].
  void add_bias(TensorView x, ConstTensorView bias);

  // x += y. Shapes: equal, f32.
  void add(TensorView x, ConstTensorView y);

  // y = act(gate) * up. Shapes: all [M, N] f32.
  void gated_activation(ConstTensorView gate, ConstTensorView up, TensorView y, Activation act);

  // x = act(x). Shapes: x [M, N] f32. In place.
  void activate(TensorView x, Activation act);

  // Row i of y = row ids[i] of the table, or zeros if this shard does not hold that id.
  // Shapes: table [rows.size(), H], the rows `rows` of the whole table; y [ids.size(), H] f32.
  void embed(std::span<const std::int32_t> ids, ConstTensorView table, Range rows, TensorView y);

  // y = x / sqrt(mean(x^2) + eps) * weight, row by row.
  // Shapes: x, y [M, H] f32, weight [H].
  void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y);

  // The same for each head of a row by itself, in place: weight is one for all heads.
  // Shapes: x [M, heads * head_dim] f32, weight [head_dim]. [chapter 06]
  void rms_norm_heads(TensorView x, ConstTensorView weight, float eps);

  // Row i of y = row rows[i] of x. Shapes: x [M, N], y [rows.size(), N] f32.
  void select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y);

  // Rotates each head of row i as the token at positions[i]. In place.
  // Shapes: x [M, heads * head_dim] f32 with head_dim = 2 * columns of the table; M positions.
  void rope(TensorView x, const RopeTable& table, std::span<const std::int32_t> positions);

  // Puts the key and the value of row i into slot slot_mapping[i] of the cache (batch.h).
  // Shapes: keys, values [M, kv_heads_local * head_dim] f32; M slots.
  void store_kv(ConstTensorView keys,
                ConstTensorView values,
                std::span<const std::int32_t> slot_mapping,
                const KvLayer& kv);

  // Causal attention: each row attends to the tokens of its own sequence up to its own position,
  // which lie in the blocks of the sequence's table. With a sliding window of W tokens it attends to
  // the last W of them, itself included; the others are not read. [window: chapter 06]
  // Shapes: q, y [M, query_heads_local * head_dim] f32; the batch has M rows. Scores are scaled by
  //         1 / sqrt(head_dim).
  void attention(ConstTensorView q,
                 const KvLayer& kv,
                 const HeadShard& heads,
                 const BatchView& batch,
                 TensorView y,
                 std::int64_t window = kNoWindow);

 private:
  virtual Buffer do_allocate(std::int64_t bytes) = 0;
  virtual Place place() const = 0;
  // Is told where an upload is about to write; the memory is contiguous.
  virtual void do_prepare_upload(TensorView /*mine*/) {}
  virtual void do_matmul(ConstTensorView x,
                         ConstTensorView w,
                         TensorView y,
                         const SumBlocks& b) = 0;
  virtual void do_add_bias(TensorView x, ConstTensorView bias) = 0;
  virtual void do_add(TensorView x, ConstTensorView y) = 0;
  virtual void do_gated_activation(ConstTensorView gate,
                                   ConstTensorView up,
                                   TensorView y,
                                   Activation act) = 0;
  virtual void do_activate(TensorView x, Activation act) = 0;
  virtual void do_embed(std::span<const std::int32_t> ids,
                        ConstTensorView table,
                        Range rows,
                        TensorView y) = 0;
  virtual void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) = 0;
  virtual void do_rms_norm_heads(TensorView x, ConstTensorView weight, float eps) = 0;
  virtual void do_select_rows(ConstTensorView x,
                              std::span<const std::int32_t> rows,
                              TensorView y) = 0;
  virtual void do_rope(TensorView x,
                       const RopeTable& table,
                       std::span<const std::int32_t> positions) = 0;
  virtual void do_store_kv(ConstTensorView keys,
                           ConstTensorView values,
                           std::span<const std::int32_t> slot_mapping,
                           const KvLayer& kv) = 0;
  virtual void do_attention(ConstTensorView q,
                            const KvLayer& kv,
                            const HeadShard& heads,
                            const BatchView& batch,
                            TensorView y,
                            std::int64_t window) = 0;

  UploadObserver upload_observer_;
  std::shared_ptr<MemoryCounter> memory_;  // shared with the tensors, which may outlive the device
};

// The CPU device. Its kernels are chosen by what this processor can do; all choices give the same
// bits.
std::unique_ptr<Device> make_cpu_device();

}  // namespace tp

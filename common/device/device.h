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
#include "common/device/activation.h"
#include "common/device/batch.h"
#include "common/device/head_shard.h"
#include "common/device/memory.h"
#include "common/device/rope_table.h"
#include "common/device/sum_blocks.h"

namespace tp {

// What a device has recorded to run again; see Device::begin_capture. [chapter 06]
class CapturedStep {
 public:
  virtual ~CapturedStep() = default;
  // Operations that one replay runs.
  virtual std::int64_t operations() const = 0;
};

// The largest step that will be run. [chapter 06]
struct StepLimits {
  std::int64_t rows = 0;            // new tokens of all sequences
  std::int64_t context_tokens = 0;  // of one sequence
  std::int64_t block_size = 0;      // of the KV cache
  std::int64_t input_features = 0;  // of the widest matmul
  std::int64_t query_heads = 0;     // of this device
  std::int64_t head_dim = 0;
  std::int64_t logit_rows = 0, logit_columns = 0;
};

// One rank owns one device and calls it from one thread. Activations are f32; weights, biases, norm
// weights and KV caches are in one of the dtypes that the device computes with, and widened exactly
// where they are used. Tensors live where the device is: what lies on the host is uploaded first,
// results are downloaded.
// Stream: operations take place in the order of the calls. On a GPU a call only queues its work;
//         download and synchronize wait for it.
// Errors: tp::Error if shapes, dtypes or places do not fit; the message names both sides.
class Device {
 public:
  Device() : memory_(std::make_shared<MemoryCounter>()) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual Place place() const = 0;
  // Whether weights and KV caches may be stored in this dtype.
  virtual bool computes_with(DType dtype) const = 0;
  // The dtype in which this device keeps a weight: what was asked for, else as the file stores it
  // or, on the CPU, f16 as f32.
  DType storage_dtype(DType stored, std::optional<DType> asked) const {
    return asked ? *asked : dtype_to_keep(stored);
  }

  // A tensor of zeros. Its bytes count under `tag` until it is destroyed.
  Tensor allocate(const Shape& shape, DType dtype, const std::string& tag);
  const MemoryCounter& memory() const { return *memory_; }

  // Copies a tensor of the host to this device, converting the dtype where it differs.
  // Shapes: equal.
  void write(ConstTensorView host, TensorView mine);
  // allocate and write, in the same dtype.
  Tensor write(ConstTensorView host, const std::string& tag);

  // write for weights: counts the bytes read.
  // Errors: tp::Error (input) if a finite value would become infinite.
  void upload(ConstTensorView host, TensorView mine);
  // allocate and upload, in storage_dtype.
  Tensor upload(ConstTensorView host, std::optional<DType> store_as, const std::string& tag);

  // A copy on the host, when all operations before have taken place.
  Tensor download(ConstTensorView mine);
  // Copies between tensors of this device. Shapes and dtypes: equal. Rows may be strided.
  void copy(ConstTensorView from, TensorView to);
  // How many bytes can still be allocated.
  virtual std::int64_t free_bytes() const = 0;
  // Returns when all operations have taken place.
  virtual void synchronize() {}

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

  // x += delta, then y = rms_norm(x): what stands between two blocks of a decoder.
  // Shapes: x, delta, y [M, H] f32, weight [H]. y is not x.
  void add_rms_norm(
      TensorView x, ConstTensorView delta, ConstTensorView weight, float eps, TensorView y);

  // rms_norm for each head of a row by itself, in place: weight is one for all heads.
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

  // rope of q and of k, then store_kv of k and v, in one pass. [chapter 06]
  void rope_and_store_kv(TensorView q,
                         TensorView k,
                         ConstTensorView v,
                         const RopeTable& table,
                         const BatchView& batch,
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

  // The column of the largest element of each row, the first of equal ones; -1 for a row with a NaN
  // in it, or whose largest element is not finite. Waits for the result, which is on the host.
  // Shapes: x [M, N] f32 -> columns [M]. [chapter 06]
  void row_argmax(ConstTensorView x, std::span<std::int32_t> columns);

  // The k largest elements of each row with their columns, the largest first, of equal ones the
  // first; behind them, if a row has fewer elements, columns of -1. Waits for the result.
  // Shapes: x [M, N] f32 -> columns, values [M * k]; k is 1 to 64, and no element is NaN.
  void row_top_k(ConstTensorView x,
                 std::int64_t k,
                 std::span<std::int32_t> columns,
                 std::span<float> values);

  // Sets memory aside for steps up to these limits, so that no step allocates any. Steps need not be
  // announced, but a captured one must have had its memory before. [chapter 06]
  virtual void reserve(const StepLimits& /*limits*/) {}

  // Makes the integers of a step known before its operations, which then find them on the device,
  // uploaded once for all layers. The spans must stay as they are until the next call; operations
  // take any other span, too, at the price of an upload each. [chapter 06]
  virtual void begin_step(const BatchView& /*batch*/,
                          std::span<const std::int32_t> /*token_ids*/,
                          std::span<const std::int32_t> /*logit_rows*/) {}

  // Recording a step to run it again with one call: between begin_capture and end_capture nothing
  // is computed. A replay reads the integers of the last begin_step, which must have the same
  // sizes, and the same tensors. Devices that cannot throw. [chapter 06]
  virtual bool can_capture() const { return false; }
  virtual void begin_capture();
  virtual std::unique_ptr<CapturedStep> end_capture();
  // Instead of end_capture, when an operation has thrown. While something is recorded no memory can
  // be given back.
  virtual void abandon_capture() {}
  virtual void replay(CapturedStep& step);

  // Called again and again while the host waits for the device, so that it can throw instead of
  // waiting for a rank that is lost. May be empty.
  void while_waiting(std::function<void()> check) { while_waiting_ = std::move(check); }

 protected:
  const std::function<void()>& waiting_check() const { return while_waiting_; }

 private:
  virtual DType dtype_to_keep(DType stored) const = 0;
  virtual Buffer do_allocate(std::int64_t bytes) = 0;
  virtual CopyFindings do_write(ConstTensorView host, TensorView mine) = 0;
  virtual void do_download(ConstTensorView mine, TensorView host) = 0;
  virtual void do_copy(ConstTensorView from, TensorView to) = 0;
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
  virtual void do_add_rms_norm(
      TensorView x, ConstTensorView delta, ConstTensorView weight, float eps, TensorView y) = 0;
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
  virtual void do_rope_and_store_kv(TensorView q,
                                    TensorView k,
                                    ConstTensorView v,
                                    const RopeTable& table,
                                    const BatchView& batch,
                                    const KvLayer& kv) = 0;
  virtual void do_row_argmax(ConstTensorView x, std::span<std::int32_t> columns) = 0;
  virtual void do_row_top_k(ConstTensorView x,
                            std::int64_t k,
                            std::span<std::int32_t> columns,
                            std::span<float> values) = 0;
  virtual void do_attention(ConstTensorView q,
                            const KvLayer& kv,
                            const HeadShard& heads,
                            const BatchView& batch,
                            TensorView y,
                            std::int64_t window) = 0;

  UploadObserver upload_observer_;
  std::function<void()> while_waiting_;
  std::shared_ptr<MemoryCounter> memory_;  // shared with the tensors, which may outlive the device
};

// The CPU device. Its kernels are chosen by what this processor can do; all choices give the same
// bits.
std::unique_ptr<Device> make_cpu_device();

}  // namespace tp

#include "common/device/device.h"

#include <iterator>
#include <new>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

void check_f32(const char* where, const char* name, ConstTensorView x) {
  if (x.dtype != DType::f32)
    throw Error(ErrorKind::rank,
                fmt::format("{}: {} is {}; activations are f32", where, name, name_of(x.dtype)));
}

void check_index(const char* where, const char* what, std::int64_t index, std::int64_t count) {
  if (index < 0 || index >= count)
    throw Error(ErrorKind::rank,
                fmt::format("{}: {} {} is not in 0 to {}", where, what, index, count - 1));
}

// f16 is a storage format of files; it is widened to f32 when a weight is loaded.
void check_weight(const char* where, ConstTensorView weight) {
  if (weight.dtype != DType::f32 && weight.dtype != DType::bf16)
    throw Error(ErrorKind::rank,
                fmt::format("{}: the weight is {}; f32 or bf16 can be computed with", where,
                            name_of(weight.dtype)));
}

}  // namespace

DType storage_dtype(DType stored, std::optional<DType> asked) {
  if (asked) return *asked;
  return stored == DType::f16 ? DType::f32 : stored;
}

Tensor Device::allocate(const Shape& shape, DType dtype, const std::string& tag) {
  const std::int64_t bytes = shape.elements() * static_cast<std::int64_t>(size_of(dtype));
  Buffer buffer;
  try {
    buffer = do_allocate(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::rank, fmt::format("{}: there is no memory for {} bytes, shape {}", tag,
                                             bytes, shape.to_string()));
  }
  memory_->allocated(tag, bytes);
  const auto release = [memory = memory_, tag, bytes,
                        free = buffer.get_deleter()](std::byte* data) {
    memory->released(tag, bytes);
    free(data);
  };
  return {Buffer(buffer.release(), release), shape, dtype, place()};
}

void Device::upload(ConstTensorView host, TensorView mine) {
  memory_->uploaded(host.bytes());
  if (mine.contiguous()) do_prepare_upload(mine);
  const CopyFindings findings = copy_host(host, mine);
  if (upload_observer_) upload_observer_(host, findings);
  if (findings.overflowed > 0)
    throw input_error(fmt::format("{} of the values of a weight {} are too large for {}",
                                  findings.overflowed, host.shape.to_string(),
                                  name_of(mine.dtype)));
}

Tensor Device::upload(ConstTensorView host, std::optional<DType> store_as, const std::string& tag) {
  Tensor mine = allocate(host.shape, storage_dtype(host.dtype, store_as), tag);
  upload(host, mine);
  return mine;
}

void Device::matmul(ConstTensorView x,
                    ConstTensorView weight,
                    TensorView y,
                    const SumBlocks& blocks) {
  check_f32("matmul", "x", x);
  check_f32("matmul", "y", y);
  check_weight("matmul", weight);
  check_equal("matmul", "columns of x", x.shape[1], "columns of weight", weight.shape[1]);
  check_equal("matmul", "shape of x W^T", Shape{x.rows(), weight.rows()}, "shape of y", y.shape);
  check_equal("matmul", "end of the last sum block",
              blocks.edge[static_cast<std::size_t>(blocks.count)], "columns of x", x.shape[1]);
  do_matmul(x, weight, y, blocks);
}

void Device::add_bias(TensorView x, ConstTensorView bias) {
  check_f32("add_bias", "x", x);
  check_weight("add_bias", bias);
  check_equal("add_bias", "columns of x", x.row_elements(), "elements of bias",
              bias.shape.elements());
  do_add_bias(x, bias);
}

void Device::add(TensorView x, ConstTensorView y) {
  check_f32("add", "x", x);
  check_f32("add", "y", y);
  check_equal("add", "x", x.shape, "y", y.shape);
  do_add(x, y);
}

void Device::gated_activation(ConstTensorView gate,
                              ConstTensorView up,
                              TensorView y,
                              Activation act) {
  check_f32("gated_activation", "gate", gate);
  check_equal("gated_activation", "gate", gate.shape, "up", up.shape);
  check_equal("gated_activation", "gate", gate.shape, "y", y.shape);
  do_gated_activation(gate, up, y, act);
}

void Device::activate(TensorView x, Activation act) {
  check_f32("activate", "x", x);
  do_activate(x, act);
}

void Device::embed(std::span<const std::int32_t> ids,
                   ConstTensorView table,
                   Range rows,
                   TensorView y) {
  check_f32("embed", "y", y);
  check_weight("embed", table);
  check_equal("embed", "rows of the table", table.rows(), "ids of the shard", rows.size());
  check_equal("embed", "ids by columns of the table",
              Shape{static_cast<std::int64_t>(ids.size()), table.shape[1]}, "shape of y", y.shape);
  do_embed(ids, table, rows, y);
}

void Device::rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) {
  check_f32("rms_norm", "x", x);
  check_weight("rms_norm", weight);
  check_equal("rms_norm", "columns of x", x.row_elements(), "elements of weight",
              weight.shape.elements());
  check_equal("rms_norm", "x", x.shape, "y", y.shape);
  do_rms_norm(x, weight, eps, y);
}

void Device::rms_norm_heads(TensorView x, ConstTensorView weight, float eps) {
  check_f32("rms_norm_heads", "x", x);
  check_weight("rms_norm_heads", weight);
  const std::int64_t head_dim = weight.shape.elements();
  const std::int64_t heads = head_dim == 0 ? 0 : x.row_elements() / head_dim;
  check_equal("rms_norm_heads", "columns of x", x.row_elements(), "heads * elements of weight",
              heads * head_dim);
  do_rms_norm_heads(x, weight, eps);
}

void Device::select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y) {
  check_f32("select_rows", "x", x);
  check_f32("select_rows", "y", y);
  check_equal("select_rows", "selected rows by columns of x",
              Shape{static_cast<std::int64_t>(rows.size()), x.row_elements()}, "shape of y",
              y.shape);
  for (const std::int32_t row : rows) check_index("select_rows", "row", row, x.rows());
  do_select_rows(x, rows, y);
}

void Device::rope(TensorView x, const RopeTable& table, std::span<const std::int32_t> positions) {
  check_f32("rope", "x", x);
  check_equal("rope", "columns of x modulo head_dim", x.row_elements() % (2 * table.cos.shape()[1]),
              "remainder", 0);
  check_equal("rope", "rows of x", x.rows(), "positions", std::ssize(positions));
  for (const std::int32_t p : positions) check_index("rope", "position", p, table.cos.shape()[0]);
  do_rope(x, table, positions);
}

void Device::store_kv(ConstTensorView keys,
                      ConstTensorView values,
                      std::span<const std::int32_t> slot_mapping,
                      const KvLayer& kv) {
  check_f32("store_kv", "keys", keys);
  check_equal("store_kv", "keys", keys.shape, "values", values.shape);
  check_equal("store_kv", "columns of keys", keys.row_elements(), "heads * head_dim of the cache",
              kv.kv_heads_local() * kv.head_dim());
  check_equal("store_kv", "rows of keys", keys.rows(), "slots", std::ssize(slot_mapping));
  for (const std::int32_t slot : slot_mapping)
    check_index("store_kv", "slot", slot, kv.num_blocks() * kv.block_size());
  do_store_kv(keys, values, slot_mapping, kv);
}

void Device::attention(ConstTensorView q,
                       const KvLayer& kv,
                       const HeadShard& heads,
                       const BatchView& batch,
                       TensorView y,
                       std::int64_t window) {
  check_f32("attention", "q", q);
  check_equal("attention", "q", q.shape, "y", y.shape);
  check_equal("attention", "columns of q", q.row_elements(), "query heads * head_dim",
              heads.query.size() * kv.head_dim());
  check_equal("attention", "KV heads of the cache", kv.kv_heads_local(), "KV heads of the shard",
              heads.kv.size());
  std::int64_t rows = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    check_equal("attention", "first row of a sequence", sequence.rows.begin,
                "rows of the sequences before it", rows);
    rows = sequence.rows.end;
    const std::int64_t context = sequence.first_position + sequence.rows.size();
    const std::int64_t needed = blocks_for(context, kv.block_size());
    if (needed > std::ssize(sequence.block_table))
      throw Error(ErrorKind::rank,
                  fmt::format("attention: {} tokens need {} blocks, but the block table has {}",
                              context, needed, sequence.block_table.size()));
    for (const std::int32_t block : sequence.block_table)
      check_index("attention", "block", block, kv.num_blocks());
  }
  check_equal("attention", "rows of q", q.rows(), "rows of all sequences", rows);
  if (window < 0)
    throw Error(ErrorKind::rank, fmt::format("attention: a window of {} tokens", window));
  do_attention(q, kv, heads, batch, y, window);
}

}  // namespace tp

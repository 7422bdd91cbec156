#include "common/device/device.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

void check_f32(const char* where, const char* name, ConstTensorView x) {
  if (x.dtype != DType::f32)
    throw Error(ErrorKind::rank,
                fmt::format("{}: {} is {}; activations are f32", where, name, name_of(x.dtype)));
}

void check_positions(const char* where,
                     std::int64_t first,
                     std::int64_t count,
                     std::int64_t limit) {
  if (first < 0 || first + count > limit)
    throw Error(ErrorKind::rank, fmt::format("{}: positions {} to {}, but only {} are provided for",
                                             where, first, first + count - 1, limit));
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
  Buffer buffer = do_allocate(bytes);
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
  copy_host(host, mine);
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

void Device::rope(TensorView x, const RopeTable& table, std::int64_t first_position) {
  check_f32("rope", "x", x);
  check_equal("rope", "columns of x modulo head_dim", x.row_elements() % (2 * table.cos.shape()[1]),
              "remainder", 0);
  check_positions("rope", first_position, x.rows(), table.cos.shape()[0]);
  do_rope(x, table, first_position);
}

void Device::store_kv(ConstTensorView keys,
                      ConstTensorView values,
                      std::int64_t first_position,
                      KvView kv) {
  check_f32("store_kv", "keys", keys);
  check_equal("store_kv", "keys", keys.shape, "values", values.shape);
  check_equal("store_kv", "columns of keys", keys.row_elements(), "heads * head_dim of the cache",
              kv.keys.shape[0] * kv.keys.shape[2]);
  check_positions("store_kv", first_position, keys.rows(), kv.keys.shape[1]);
  do_store_kv(keys, values, first_position, kv);
}

void Device::attention(ConstTensorView q,
                       const KvView& kv,
                       const HeadShard& heads,
                       std::int64_t first_position,
                       TensorView y) {
  check_f32("attention", "q", q);
  check_equal("attention", "q", q.shape, "y", y.shape);
  check_equal("attention", "columns of q", q.row_elements(), "query heads * head_dim",
              heads.query.size() * kv.keys.shape[2]);
  check_equal("attention", "KV heads of the cache", kv.keys.shape[0], "KV heads of the shard",
              heads.kv.size());
  check_positions("attention", first_position, q.rows(), kv.keys.shape[1]);
  do_attention(q, kv, heads, first_position, y);
}

}  // namespace tp

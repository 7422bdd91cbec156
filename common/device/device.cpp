#include "common/device/device.h"

#include <iterator>
#include <new>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

// The checks of one operation.
struct Check {
  const char* operation;
  const Device& device;

  void is_here(const char* name, ConstTensorView x) const {
    if (x.place == device.place()) return;
    const auto text = [](Place place) { return place == Place::host ? "the host" : "a GPU"; };
    throw Error(ErrorKind::rank,
                fmt::format("{}: {} lives on {}, but the device computes on {}; upload or download "
                            "it first",
                            operation, name, text(x.place), text(device.place())));
  }
  void activation(const char* name, ConstTensorView x) const {
    is_here(name, x);
    if (x.dtype != DType::f32)
      throw Error(ErrorKind::rank, fmt::format("{}: {} is {}; activations are f32", operation, name,
                                               name_of(x.dtype)));
  }
  // A weight or a KV cache.
  void stored(const char* name, ConstTensorView x) const {
    is_here(name, x);
    if (!device.computes_with(x.dtype))
      throw Error(ErrorKind::rank,
                  fmt::format("{}: {} is {}, which this device does not compute with", operation,
                              name, name_of(x.dtype)));
  }
  // Keys and values are one cache: what is known of the keys holds for both.
  void cache(const KvLayer& kv) const {
    stored("the cache", kv.keys);
    stored("the cache", kv.values);
    check_equal(operation, "keys of the cache", kv.keys.shape, "values of the cache",
                kv.values.shape);
    if (kv.keys.dtype != kv.values.dtype)
      throw Error(ErrorKind::rank,
                  fmt::format("{}: keys of the cache are {}, values {}; dtypes must be equal",
                              operation, name_of(kv.keys.dtype), name_of(kv.values.dtype)));
  }
  void index(const char* what, std::int64_t value, std::int64_t count) const {
    if (value < 0 || value >= count)
      throw Error(ErrorKind::rank,
                  fmt::format("{}: {} {} is not in 0 to {}", operation, what, value, count - 1));
  }
  void rope(ConstTensorView x,
            const RopeTable& table,
            std::span<const std::int32_t> positions) const {
    activation("x", x);
    is_here("the table", table.cos);
    check_equal(operation, "columns of x modulo head_dim",
                x.row_elements() % (2 * table.cos.shape()[1]), "remainder", 0);
    check_equal(operation, "rows of x", x.rows(), "positions", std::ssize(positions));
    for (const std::int32_t p : positions) index("position", p, table.cos.shape()[0]);
  }
  void store_kv(ConstTensorView keys,
                ConstTensorView values,
                std::span<const std::int32_t> slot_mapping,
                const KvLayer& kv) const {
    activation("keys", keys);
    activation("values", values);
    cache(kv);
    check_equal(operation, "keys", keys.shape, "values", values.shape);
    check_equal(operation, "columns of keys", keys.row_elements(), "heads * head_dim of the cache",
                kv.kv_heads_local() * kv.head_dim());
    check_equal(operation, "rows of keys", keys.rows(), "slots", std::ssize(slot_mapping));
    for (const std::int32_t slot : slot_mapping)
      index("slot", slot, kv.num_blocks() * kv.block_size());
  }
};

[[noreturn]] void refuse_capture() {
  throw Error(ErrorKind::rank, "this device cannot capture steps");
}

}  // namespace

void Device::begin_capture() {
  refuse_capture();
}

std::unique_ptr<CapturedStep> Device::end_capture() {
  refuse_capture();
}

void Device::replay(CapturedStep& /*step*/) {
  refuse_capture();
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

void Device::write(ConstTensorView host, TensorView mine) {
  Check{"write", *this}.is_here("the destination", mine);
  check_equal("write", "host", host.shape, "mine", mine.shape);
  do_write(host, mine);
}

Tensor Device::write(ConstTensorView host, const std::string& tag) {
  Tensor mine = allocate(host.shape, host.dtype, tag);
  write(host, mine);
  return mine;
}

void Device::upload(ConstTensorView host, TensorView mine) {
  Check{"upload", *this}.is_here("the destination", mine);
  check_equal("upload", "host", host.shape, "mine", mine.shape);
  memory_->uploaded(host.bytes());
  const CopyFindings findings = do_write(host, mine);
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

Tensor Device::download(ConstTensorView mine) {
  Check{"download", *this}.is_here("the tensor", mine);
  Tensor host = Tensor::on_host(mine.shape, mine.dtype);
  do_download(mine, host);
  return host;
}

void Device::copy(ConstTensorView from, TensorView to) {
  const Check check{"copy", *this};
  check.is_here("from", from);
  check.is_here("to", to);
  check_equal("copy", "from", from.shape, "to", to.shape);
  if (from.dtype != to.dtype)
    throw Error(ErrorKind::rank, fmt::format("copy: from {} to {}; dtypes must be equal",
                                             name_of(from.dtype), name_of(to.dtype)));
  do_copy(from, to);
}

void Device::matmul(ConstTensorView x,
                    ConstTensorView weight,
                    TensorView y,
                    const SumBlocks& blocks) {
  const Check check{"matmul", *this};
  check.activation("x", x);
  check.activation("y", y);
  check.stored("the weight", weight);
  check_equal("matmul", "columns of x", x.shape[1], "columns of weight", weight.shape[1]);
  check_equal("matmul", "shape of x W^T", Shape{x.rows(), weight.rows()}, "shape of y", y.shape);
  check_equal("matmul", "end of the last sum block",
              blocks.edge[static_cast<std::size_t>(blocks.count)], "columns of x", x.shape[1]);
  do_matmul(x, weight, y, blocks);
}

void Device::add_bias(TensorView x, ConstTensorView bias) {
  const Check check{"add_bias", *this};
  check.activation("x", x);
  check.stored("the bias", bias);
  check_equal("add_bias", "columns of x", x.row_elements(), "elements of bias",
              bias.shape.elements());
  do_add_bias(x, bias);
}

void Device::add(TensorView x, ConstTensorView y) {
  const Check check{"add", *this};
  check.activation("x", x);
  check.activation("y", y);
  check_equal("add", "x", x.shape, "y", y.shape);
  do_add(x, y);
}

void Device::gated_activation(ConstTensorView gate,
                              ConstTensorView up,
                              TensorView y,
                              Activation act) {
  const Check check{"gated_activation", *this};
  check.activation("gate", gate);
  check.activation("up", up);
  check.activation("y", y);
  check_equal("gated_activation", "gate", gate.shape, "up", up.shape);
  check_equal("gated_activation", "gate", gate.shape, "y", y.shape);
  do_gated_activation(gate, up, y, act);
}

void Device::activate(TensorView x, Activation act) {
  const Check check{"activate", *this};
  check.activation("x", x);
  do_activate(x, act);
}

void Device::embed(std::span<const std::int32_t> ids,
                   ConstTensorView table,
                   Range rows,
                   TensorView y) {
  const Check check{"embed", *this};
  check.activation("y", y);
  check.stored("the table", table);
  check_equal("embed", "rows of the table", table.rows(), "ids of the shard", rows.size());
  check_equal("embed", "ids by columns of the table",
              Shape{static_cast<std::int64_t>(ids.size()), table.shape[1]}, "shape of y", y.shape);
  do_embed(ids, table, rows, y);
}

void Device::rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) {
  const Check check{"rms_norm", *this};
  check.activation("x", x);
  check.stored("the weight", weight);
  check.activation("y", y);
  check_equal("rms_norm", "columns of x", x.row_elements(), "elements of weight",
              weight.shape.elements());
  check_equal("rms_norm", "x", x.shape, "y", y.shape);
  do_rms_norm(x, weight, eps, y);
}

void Device::add_rms_norm(
    TensorView x, ConstTensorView delta, ConstTensorView weight, float eps, TensorView y) {
  const Check check{"add_rms_norm", *this};
  check.activation("x", x);
  check.activation("delta", delta);
  check.activation("y", y);
  check.stored("the weight", weight);
  check_equal("add_rms_norm", "columns of x", x.row_elements(), "elements of weight",
              weight.shape.elements());
  check_equal("add_rms_norm", "x", x.shape, "delta", delta.shape);
  check_equal("add_rms_norm", "x", x.shape, "y", y.shape);
  do_add_rms_norm(x, delta, weight, eps, y);
}

void Device::rms_norm_heads(TensorView x, ConstTensorView weight, float eps) {
  const Check check{"rms_norm_heads", *this};
  check.activation("x", x);
  check.stored("the weight", weight);
  const std::int64_t head_dim = weight.shape.elements();
  const std::int64_t heads = head_dim == 0 ? 0 : x.row_elements() / head_dim;
  check_equal("rms_norm_heads", "columns of x", x.row_elements(), "heads * elements of weight",
              heads * head_dim);
  do_rms_norm_heads(x, weight, eps);
}

void Device::select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y) {
  const Check check{"select_rows", *this};
  check.activation("x", x);
  check.activation("y", y);
  check_equal("select_rows", "selected rows by columns of x",
              Shape{static_cast<std::int64_t>(rows.size()), x.row_elements()}, "shape of y",
              y.shape);
  for (const std::int32_t row : rows) check.index("row", row, x.rows());
  do_select_rows(x, rows, y);
}

void Device::rope(TensorView x, const RopeTable& table, std::span<const std::int32_t> positions) {
  Check{"rope", *this}.rope(x, table, positions);
  do_rope(x, table, positions);
}

void Device::store_kv(ConstTensorView keys,
                      ConstTensorView values,
                      std::span<const std::int32_t> slot_mapping,
                      const KvLayer& kv) {
  Check{"store_kv", *this}.store_kv(keys, values, slot_mapping, kv);
  do_store_kv(keys, values, slot_mapping, kv);
}

void Device::rope_and_store_kv(TensorView q,
                               TensorView k,
                               ConstTensorView v,
                               const RopeTable& table,
                               const BatchView& batch,
                               const KvLayer& kv) {
  const Check check{"rope_and_store_kv", *this};
  check.rope(q, table, batch.positions);
  check.rope(k, table, batch.positions);
  check.store_kv(k, v, batch.slot_mapping, kv);
  check_equal("rope_and_store_kv", "head_dim of the table", 2 * table.cos.shape()[1],
              "head_dim of the cache", kv.head_dim());
  do_rope_and_store_kv(q, k, v, table, batch, kv);
}

void Device::row_argmax(ConstTensorView x, std::span<std::int32_t> columns) {
  Check{"row_argmax", *this}.activation("x", x);
  check_equal("row_argmax", "rows of x", x.rows(), "columns", std::ssize(columns));
  do_row_argmax(x, columns);
}

void Device::row_top_k(ConstTensorView x,
                       std::int64_t k,
                       std::span<std::int32_t> columns,
                       std::span<float> values) {
  constexpr std::int64_t kMost = 64;
  const Check check{"row_top_k", *this};
  check.activation("x", x);
  check.index("k - 1 =", k - 1, kMost);
  check_equal("row_top_k", "rows of x * k", x.rows() * k, "columns", std::ssize(columns));
  check_equal("row_top_k", "rows of x * k", x.rows() * k, "values", std::ssize(values));
  do_row_top_k(x, k, columns, values);
}

void Device::attention(ConstTensorView q,
                       const KvLayer& kv,
                       const HeadShard& heads,
                       const BatchView& batch,
                       TensorView y,
                       std::int64_t window) {
  const Check check{"attention", *this};
  check.activation("q", q);
  check.activation("y", y);
  check.cache(kv);
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
      check.index("block", block, kv.num_blocks());
  }
  check_equal("attention", "rows of q", q.rows(), "rows of all sequences", rows);
  if (window < 0)
    throw Error(ErrorKind::rank, fmt::format("attention: a window of {} tokens", window));
  do_attention(q, kv, heads, batch, y, window);
}

}  // namespace tp

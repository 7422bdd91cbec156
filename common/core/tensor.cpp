#include "common/core/tensor.h"

#include <cstring>
#include <new>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  if (sizes.size() > sizes_.size())
    throw Error(ErrorKind::rank, fmt::format("a shape of {} dimensions; at most 4", sizes.size()));
  for (const std::int64_t size : sizes) {
    if (size < 0) throw Error(ErrorKind::rank, fmt::format("a shape with the size {}", size));
    sizes_[static_cast<std::size_t>(dims_++)] = size;
  }
}

std::int64_t Shape::elements() const {
  return sizes_[0] * row_elements();
}

std::int64_t Shape::row_elements() const {
  return sizes_[1] * sizes_[2] * sizes_[3];
}

Shape Shape::with_rows(std::int64_t rows) const {
  Shape shape = *this;
  shape.sizes_[0] = rows;
  return shape;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(sizes_.begin(), sizes_.begin() + dims_, ", "));
}

void refuse_host_access(DType have, DType want, Place place) {
  if (place != Place::host) throw Error(ErrorKind::rank, "host code read a tensor of a GPU");
  throw Error(ErrorKind::rank,
              fmt::format("a tensor of {} was read as {}", name_of(have), name_of(want)));
}

Tensor::Tensor(Buffer buffer, const Shape& shape, DType dtype, Place place)
    : buffer_(std::move(buffer)), shape_(shape), dtype_(dtype), place_(place) {}

Tensor Tensor::on_host(const Shape& shape, DType dtype) {
  constexpr std::align_val_t kCacheLine{64};
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  auto* data = static_cast<std::byte*>(::operator new(bytes, kCacheLine));
  std::memset(data, 0, bytes);
  return {Buffer(data, [](std::byte* p) { ::operator delete(p, kCacheLine); }), shape, dtype,
          Place::host};
}

TensorView Tensor::view() {
  return {buffer_.get(), shape_, dtype_, place_, shape_.row_elements()};
}

ConstTensorView Tensor::view() const {
  return {buffer_.get(), shape_, dtype_, place_, shape_.row_elements()};
}

void check_equal(std::string_view where,
                 std::string_view left_name,
                 std::int64_t left,
                 std::string_view right_name,
                 std::int64_t right) {
  if (left != right)
    throw Error(ErrorKind::rank, fmt::format("{}: {} = {}, {} = {}; they must be equal", where,
                                             left_name, left, right_name, right));
}

void check_equal(std::string_view where,
                 std::string_view left_name,
                 const Shape& left,
                 std::string_view right_name,
                 const Shape& right) {
  if (left != right)
    throw Error(ErrorKind::rank,
                fmt::format("{}: {} is {}, {} is {}; they must be equal", where, left_name,
                            left.to_string(), right_name, right.to_string()));
}

namespace {

template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<To, bf16>)
      to[i] = to_bf16(to_float(from[i]));
    else
      to[i] = to_float(from[i]);
  }
}

// row<T> refuses the dtypes that have no conversion.
template <class From>
void convert_row(const From* from, TensorView to, std::int64_t row) {
  if (to.dtype == DType::bf16)
    convert(from, to.row<bf16>(row), to.row_elements());
  else
    convert(from, to.row<float>(row), to.row_elements());
}

}  // namespace

void copy_host(ConstTensorView from, TensorView to) {
  check_equal("copy", "from", from.shape, "to", to.shape);
  const std::int64_t count = from.row_elements();
  if (count == 0) return;  // there may be no memory at all
  for (std::int64_t i = 0; i < from.rows(); ++i) {
    if (from.dtype == to.dtype) {
      const auto size = static_cast<std::int64_t>(size_of(from.dtype));
      std::memcpy(to.data + i * to.row_stride * size, from.data + i * from.row_stride * size,
                  static_cast<std::size_t>(count * size));
    } else if (from.dtype == DType::bf16) {
      convert_row(from.row<bf16>(i), to, i);
    } else if (from.dtype == DType::f16) {
      convert_row(from.row<f16>(i), to, i);
    } else {
      convert_row(from.row<float>(i), to, i);
    }
  }
}

}  // namespace tp

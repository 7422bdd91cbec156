// Shapes, views on memory, and tensors that own memory. [introduced in chapter 01]
//
// A tensor is row-major. The one freedom it has is the distance between its rows, so that a column
// slice of a matrix is a view and needs no copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/dtype.h"
#include "common/core/range.h"

namespace tp {

// Sizes of up to four dimensions, outermost first.
class Shape {
 public:
  Shape(std::initializer_list<std::int64_t> sizes);

  int dims() const { return dims_; }
  std::int64_t operator[](int dim) const { return sizes_[static_cast<std::size_t>(dim)]; }
  std::int64_t elements() const;
  std::int64_t row_elements() const;  // elements of one index of dimension 0
  Shape with_rows(std::int64_t rows) const;
  std::string to_string() const;  // "[2, 4]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, 4> sizes_{1, 1, 1, 1};
  int dims_ = 0;
};

// Where the bytes of a tensor live.
enum class Place : std::uint8_t { host, cuda };

// Throws tp::Error: host code asked for elements of `want` in a tensor of `have` at `place`.
[[noreturn]] void refuse_host_access(DType have, DType want, Place place);

// A window on a tensor's memory; Byte is std::byte or const std::byte. It owns nothing.
// Rows are row_stride elements apart, everything inside a row is contiguous.
template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  Shape shape{0};
  DType dtype = DType::f32;
  Place place = Place::host;
  std::int64_t row_stride = 0;

  template <class T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  std::int64_t rows() const { return shape[0]; }
  std::int64_t row_elements() const { return shape.row_elements(); }
  bool contiguous() const { return rows() <= 1 || row_stride == row_elements(); }
  // Whether elements can be read where they lie. Only tensors of a file may be elsewhere; copy_host
  // reads them anyway.
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0; }
  std::int64_t bytes() const {
    return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
  }

  // The elements of row i. Errors: tp::Error if T is not the dtype, or the tensor is on a GPU.
  template <class T>
  Element<T>* row(std::int64_t i) const {
    if (place != Place::host || dtype != dtype_of<T>) refuse_host_access(dtype, dtype_of<T>, place);
    return reinterpret_cast<Element<T>*>(data) + i * row_stride;
  }

  // Rows [range.begin, range.end).
  BasicTensorView rows_in(Range range) const {
    BasicTensorView part = *this;
    part.data += range.begin * row_stride * static_cast<std::int64_t>(size_of(dtype));
    part.shape = shape.with_rows(range.size());
    return part;
  }

  // Columns [range.begin, range.end) of a matrix.
  BasicTensorView columns_in(Range range) const {
    BasicTensorView part = *this;
    part.data += range.begin * static_cast<std::int64_t>(size_of(dtype));
    part.shape = {rows(), range.size()};
    return part;
  }

  operator BasicTensorView<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, shape, dtype, place, row_stride};
  }
};
using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

// A contiguous view on rows * columns elements at `data`.
template <class T>
ConstTensorView view_of(const T* data, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(data), shape, dtype_of<T>, Place::host,
          shape.row_elements()};
}
template <class T>
TensorView view_of(T* data, const Shape& shape) requires(!std::is_const_v<T>) {
  return {reinterpret_cast<std::byte*>(data), shape, dtype_of<T>, Place::host,
          shape.row_elements()};
}

// Memory of a tensor. Whoever allocates it says how it is given back.
using Buffer = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

// A tensor that owns its memory. Move-only. Ranks get theirs from Device::allocate, which counts
// the bytes.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Buffer buffer, const Shape& shape, DType dtype, Place place);

  // A tensor of zeros in host memory that belongs to no device.
  static Tensor on_host(const Shape& shape, DType dtype = DType::f32);

  bool empty() const { return buffer_ == nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  TensorView view();
  ConstTensorView view() const;
  operator TensorView() { return view(); }
  operator ConstTensorView() const { return view(); }

  template <class T>
  T* row(std::int64_t i) {
    return view().row<T>(i);
  }
  template <class T>
  const T* row(std::int64_t i) const {
    return view().row<T>(i);
  }

 private:
  Buffer buffer_;
  Shape shape_{0};
  DType dtype_ = DType::f32;
  Place place_ = Place::host;
};

// Throws tp::Error naming both sides unless left == right, for example
// "matmul: columns of x = 5, columns of weight = 4; they must be equal".
void check_equal(std::string_view where,
                 std::string_view left_name,
                 std::int64_t left,
                 std::string_view right_name,
                 std::int64_t right);
void check_equal(std::string_view where,
                 std::string_view left_name,
                 const Shape& left,
                 std::string_view right_name,
                 const Shape& right);

// What a copy met on its way.
struct CopyFindings {
  std::int64_t not_finite = 0;  // elements that are infinite or NaN, where they come from already
  std::int64_t overflowed = 0;  // elements whose value the other dtype only has as infinity
};

// Copies `from` into `to`, element by element. Dtypes that differ are converted: from f32, bf16 or
// f16 to f32, bf16 or f16, rounding to the nearest. `from` may lie at any address, as in a file.
// Shapes: equal. Both on the host.
CopyFindings copy_host(ConstTensorView from, TensorView to);

}  // namespace tp

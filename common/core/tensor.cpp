#include "common/core/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

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

// An element anywhere in memory.
template <class T>
T load(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

// Words of a dtype without their signs, which are in the order of the values.
template <class Word>
struct Limits {
  Word infinite;     // infinity; NaNs are above
  Word overflowing;  // from here on the other dtype has no finite value
};

template <class Word>
void inspect(const std::byte* from,
             std::int64_t count,
             Limits<Word> limits,
             CopyFindings& findings) {
  using Signed = std::make_signed_t<Word>;  // has a maximum in the oldest vector instructions
  constexpr auto kMask = static_cast<Word>(std::numeric_limits<Signed>::max());
  const auto magnitude = [&](std::int64_t i) {
    return static_cast<Signed>(load<Word>(from + i * sizeof(Word)) & kMask);
  };
  Signed largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude(i));
  if (largest < static_cast<Signed>(limits.overflowing)) return;
  for (std::int64_t i = 0; i < count; ++i) {
    if (magnitude(i) >= static_cast<Signed>(limits.infinite))
      ++findings.not_finite;
    else if (magnitude(i) >= static_cast<Signed>(limits.overflowing))
      ++findings.overflowed;
  }
}

void inspect(ConstTensorView run, DType to, CopyFindings& findings) {
  const std::int64_t count = run.shape.elements();
  // From halfway between the largest finite value and the next power of two on, a value becomes
  // infinity: in bf16 about 3.4e38, in f16 65520.
  const bool to_bf16 = to == DType::bf16, to_f16 = to == DType::f16;
  if (run.dtype == DType::f32)
    inspect<std::uint32_t>(run.data, count,
                           {0x7f800000u, to_bf16  ? 0x7f7f8000u
                                         : to_f16 ? 0x477ff000u
                                                  : 0x7f800000u},
                           findings);
  if (run.dtype == DType::bf16)
    inspect<std::uint16_t>(run.data, count,
                           {0x7f80, to_f16 ? std::uint16_t{0x4780} : std::uint16_t{0x7f80}},
                           findings);
  if (run.dtype == DType::f16) inspect<std::uint16_t>(run.data, count, {0x7c00, 0x7c00}, findings);
}

template <class From>
void convert(const std::byte* from, TensorView to) {
  const std::int64_t count = to.shape.elements();
  if (to.dtype == DType::bf16) {
    bf16* const out = to.row<bf16>(0);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = to_bf16(to_float(load<From>(from + i * sizeof(From))));
  } else if (to.dtype == DType::f16) {
    f16* const out = to.row<f16>(0);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = to_f16(to_float(load<From>(from + i * sizeof(From))));
  } else {
    float* const out = to.row<float>(0);  // refuses the dtypes that have no conversion
    for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(load<From>(from + i * sizeof(From)));
  }
}

// So few elements that they are still in the processor's cache when they are inspected.
constexpr std::int64_t kRunElements = 8192;

// Elements [run.begin, run.end) of a row.
template <class Byte>
BasicTensorView<Byte> run_of(const BasicTensorView<Byte>& tensor, std::int64_t row, Range run) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  return {tensor.data + (row * tensor.row_stride + run.begin) * size,
          {1, run.size()},
          tensor.dtype,
          tensor.place,
          run.size()};
}

void copy_run(ConstTensorView from, TensorView to) {
  if (from.dtype == to.dtype)
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
  else if (from.dtype == DType::bf16)
    convert<bf16>(from.data, to);
  else if (from.dtype == DType::f16)
    convert<f16>(from.data, to);
  else if (from.dtype == DType::f32)
    convert<float>(from.data, to);
  else
    refuse_host_access(from.dtype, DType::f32, from.place);
}

}  // namespace

CopyFindings copy_host(ConstTensorView from, TensorView to) {
  check_equal("copy", "from", from.shape, "to", to.shape);
  for (const auto& [dtype, place] :
       {std::pair(from.dtype, from.place), std::pair(to.dtype, to.place)})
    if (place != Place::host) refuse_host_access(dtype, dtype, place);
  const bool is_one_row = from.contiguous() && to.contiguous();
  const std::int64_t rows = is_one_row ? 1 : from.rows();
  const std::int64_t columns = is_one_row ? from.shape.elements() : from.row_elements();
  CopyFindings findings;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t begin = 0; begin < columns; begin += kRunElements) {
      const Range run{begin, std::min(begin + kRunElements, columns)};
      const ConstTensorView source = run_of(from, row, run);
      copy_run(source, run_of(to, row, run));
      inspect(source, to.dtype, findings);
    }
  }
  return findings;
}

}  // namespace tp

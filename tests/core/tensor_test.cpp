#include "common/core/tensor.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
CopyFindings findings_of(const std::vector<T>& values, DType to) {
  Tensor copy = Tensor::on_host({static_cast<std::int64_t>(values.size())}, to);
  return copy_host(view_of(values.data(), copy.shape()), copy);
}

std::vector<f16> halves(const std::vector<std::uint16_t>& words) {
  std::vector<f16> values;
  for (const std::uint16_t word : words) values.push_back({word});
  return values;
}

std::vector<bf16> brains(const std::vector<std::uint16_t>& words) {
  std::vector<bf16> values;
  for (const std::uint16_t word : words) values.push_back({word});
  return values;
}

}  // namespace

TEST_CASE("a range of units is a range of their parts and may be cut") {
  CHECK(Range{2, 4}.times(32) == Range{64, 128});
  CHECK(Range{6, 9}.within(10) == Range{6, 9});
  CHECK(Range{6, 9}.within(7) == Range{6, 7});
  CHECK(Range{6, 9}.within(3) == Range{3, 3});
}

TEST_CASE("a copy reads elements at any address") {
  std::vector<std::byte> bytes(64);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    const float values[] = {1.5f, -2, 65536};
    std::memcpy(bytes.data() + shift, values, sizeof values);
    const ConstTensorView view{bytes.data() + shift, {3}, DType::f32, Place::host, 1};
    CHECK(view.aligned() == (reinterpret_cast<std::uintptr_t>(view.data) % 4 == 0));
    for (const DType to : {DType::f32, DType::bf16}) {
      Tensor copy = Tensor::on_host({3}, to);
      copy_host(view, copy);
      Tensor wide = Tensor::on_host({3});
      copy_host(copy, wide);
      CHECK(std::vector<float>(wide.row<float>(0), wide.row<float>(0) + 3) ==
            std::vector<float>{1.5f, -2, 65536});
    }
  }
}

TEST_CASE("a copy of columns leaves the other columns alone") {
  std::vector<float> matrix(12), target(12, -1);
  for (std::size_t i = 0; i < 12; ++i) matrix[i] = static_cast<float>(i);
  copy_host(view_of(matrix.data(), {3, 4}).columns_in({1, 3}),
            view_of(target.data(), {3, 4}).columns_in({2, 4}));
  CHECK(target == std::vector<float>{-1, -1, 1, 2, -1, -1, 5, 6, -1, -1, 9, 10});
}

TEST_CASE("a copy counts what is not finite already") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> floats{1, kInf, -kInf, nan, -nan, std::numeric_limits<float>::max(), 0};
  CHECK(findings_of(floats, DType::f32).not_finite == 4);
  CHECK(findings_of(floats, DType::f32).overflowed == 0);
  const std::vector<bf16> words = brains({0x3f80, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x7f7f, 0x8000});
  for (const DType to : {DType::f32, DType::bf16}) {
    CHECK(findings_of(words, to).not_finite == 4);
    CHECK(findings_of(words, to).overflowed == 0);
  }
  const std::vector<f16> small = halves({0x3c00, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x7bff, 0x8000});
  for (const DType to : {DType::f32, DType::bf16}) {
    CHECK(findings_of(small, to).not_finite == 4);
    CHECK(findings_of(small, to).overflowed == 0);
  }
}

TEST_CASE("a copy counts the floats that bf16 only has as infinity") {
  const auto of_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  // The largest float that rounds down to the largest bf16, the first that does not, and the last.
  const std::vector<float> edges{of_bits(0x7f7f7fff), of_bits(0x7f7f8000), of_bits(0x7f7fffff),
                                 of_bits(0xff7f8000)};
  CHECK(findings_of(edges, DType::bf16).overflowed == 3);
  CHECK(findings_of(edges, DType::bf16).not_finite == 0);
  CHECK(findings_of(edges, DType::f32).overflowed == 0);
  for (const float value : edges)
    CHECK(std::isinf(to_float(to_bf16(value))) ==
          (findings_of(std::vector<float>{value}, DType::bf16).overflowed == 1));
}

TEST_CASE("what f16 has only as infinity is counted as overflowed") {
  for (const float value : {65504.0f, 65519.99f, 65520.0f, -65520.0f, 1e9f, 1e-9f})
    CHECK(std::isinf(to_float(to_f16(value))) ==
          (findings_of(std::vector<float>{value}, DType::f16).overflowed == 1));
  const std::vector<bf16> words{{0x477f}, {0x4780}, {0xc780}, {0x7f80}};
  CHECK(findings_of(words, DType::f16).overflowed == 2);
  CHECK(findings_of(words, DType::f16).not_finite == 1);
}

TEST_CASE("findings are counted in long rows and in strided ones") {
  std::vector<bf16> matrix(3 * 20000, bf16{0x3f80});
  for (const std::size_t i : {0u, 19999u, 8192u, 20000u, 59999u}) matrix[i] = {0x7f80};
  const ConstTensorView whole = view_of(matrix.data(), {3, 20000});
  Tensor copy = Tensor::on_host({3, 20000}, DType::bf16);
  CHECK(copy_host(whole, copy).not_finite == 5);
  Tensor columns = Tensor::on_host({3, 19999}, DType::f32);
  CHECK(copy_host(whole.columns_in({1, 20000}), columns).not_finite == 3);
  Tensor none = Tensor::on_host({3, 0}, DType::f32);
  CHECK(copy_host(whole.columns_in({7, 7}), none).not_finite == 0);
}

TEST_CASE("what has no conversion is refused") {
  const std::vector<float> floats{1, 2};
  Tensor half = Tensor::on_host({2}, DType::f16), ints = Tensor::on_host({2}, DType::i32);
  CHECK_THROWS_AS(copy_host(view_of(floats.data(), {2}), ints), Error);
  CHECK_THROWS_AS(copy_host(ints, half), Error);
  Tensor other = Tensor::on_host({2}, DType::i32);
  copy_host(ints, other);  // the same dtype
}

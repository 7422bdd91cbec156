// Every kernel variant that this processor can execute gives the bits of the plain loops.
#include "common/device/cpu/kernels.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "common/device/reference_ops.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

std::vector<const cpu::Kernels*> variants() {
  const cpu::KernelList list = cpu::usable_kernels();
  return {list.variants, list.variants + list.count};
}

void run(const cpu::Kernels& kernels,
         ConstTensorView x,
         ConstTensorView w,
         TensorView y,
         const SumBlocks& blocks) {
  kernels.matmul({x.row<float>(0), x.row_stride, w.data, w.dtype == DType::bf16, w.row_stride,
                  y.row<float>(0), y.row_stride, x.rows(), w.rows(), blocks.edge.data(),
                  blocks.count});
}

// Compares all variants on one shape, for one device and for each rank of several group sizes.
// Returns the first case that differs, or nothing.
std::string first_difference(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
  Framed x(random_matrix(m, k, 1), DType::f32);
  Framed w(random_matrix(n, k, 2), dtype);
  for (const int tp_size : {1, 2, 3, 8}) {
    for (int rank = 0; rank < tp_size; ++rank) {
      const SumBlocks blocks = SumBlocks::of_rank(k, rank, tp_size);
      if (blocks.count == 0) continue;  // fewer features than ranks: no kernel is called
      const Range shard = even_split(k, rank, tp_size);
      const ConstTensorView x_local = x.view().columns_in(shard);
      const ConstTensorView w_local = w.view().columns_in(shard);
      Framed wanted(m, n);
      reference::matmul(x_local, w_local, wanted.view(), blocks);
      for (const cpu::Kernels* kernels : variants()) {
        Framed y(m, n);
        run(*kernels, x_local, w_local, y.view(), blocks);
        if (!same_bits(y.view(), wanted.view()) || !y.intact())
          return fmt::format("{}: M={} N={} K={} {} rank {} of {}{}", kernels->name, m, n, k,
                             name_of(dtype), rank, tp_size,
                             y.intact() ? "" : ": written outside of y");
      }
    }
  }
  return "";
}

}  // namespace

TEST_CASE("the best kernels come last and the first ones run everywhere") {
  REQUIRE(variants().front()->name == std::string("baseline"));
  REQUIRE(variants().size() <= 3);
}

TEST_CASE("matmul kernels give the bits of the reference") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t k = GENERATE(1, 2, 3, 7, 15, 16, 17, 31, 33, 50, 127, 128, 256, 704);
  for (const std::int64_t m : {1, 2, 3, 5, 17})
    for (const std::int64_t n : {1, 2, 3, 31, 64, 65, 130})
      REQUIRE(first_difference(m, n, k, dtype) == "");
}

TEST_CASE("matmul kernels give the bits of the reference for many rows and long blocks") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  for (const std::int64_t k : {1, 31, 128, 704, 2500})
    for (const std::int64_t n : {1, 67}) REQUIRE(first_difference(102, n, k, dtype) == "");
  REQUIRE(first_difference(25, 18, 17'000, dtype) == "");
}

TEST_CASE("matmul kernels keep the sign of a zero that comes from underflow") {
  // -1e-30 * 1e-30 is no float; it rounds to -0, and a sum of such products stays -0.
  const std::int64_t k = GENERATE(1, 128, 152, 700);  // 152: blocks of 16 + 3 features
  const std::int64_t m = GENERATE(3, 30);
  Matrix x(m, k), w(5, k);
  for (float& value : x.values) value = -1e-30f;
  for (float& value : w.values) value = 1e-30f;
  const SumBlocks blocks = SumBlocks::whole(k);
  Matrix wanted(m, 5);
  reference::matmul(x.view(), w.view(), wanted.view(), blocks);
  for (const cpu::Kernels* kernels : variants()) {
    Matrix y(m, 5);
    run(*kernels, x.view(), w.view(), y.view(), blocks);
    INFO(kernels->name);
    REQUIRE(same_bits(y.view(), wanted.view()));
  }
}

TEST_CASE("matmul kernels pass infinities and NaN on") {
  const std::int64_t k = 39;
  Matrix x = random_matrix(2, k, 1);
  x(0, 38) = INFINITY;
  x(1, 5) = NAN;
  const Matrix w = random_matrix(3, k, 2);
  for (const cpu::Kernels* kernels : variants()) {
    Matrix y(2, 3);
    run(*kernels, x.view(), w.view(), y.view(), SumBlocks::whole(k));
    INFO(kernels->name);
    for (std::int64_t n = 0; n < 3; ++n) {
      REQUIRE(std::isinf(y(0, n)));
      REQUIRE(std::isnan(y(1, n)));
    }
  }
}

TEST_CASE("dot kernels give the bits of the reference") {
  for (std::int64_t length = 0; length <= 100; ++length) {
    const Matrix a = random_matrix(1, length + 1, 3), b = random_matrix(1, length + 1, 4);
    const float wanted = reference::dot(a.values.data(), b.values.data(), length);
    for (const cpu::Kernels* kernels : variants()) {
      INFO(kernels->name << " length " << length);
      REQUIRE(kernels->dot(a.values.data(), b.values.data(), length) == wanted);
    }
  }
}

TEST_CASE("add_scaled kernels fuse product and sum and stay within their length") {
  for (std::int64_t length = 0; length <= 70; ++length) {
    const Matrix x = random_matrix(1, length + 1, 5), y = random_matrix(1, length + 1, 6);
    const float a = 0.37f;
    for (const cpu::Kernels* kernels : variants()) {
      Matrix sum = y;
      kernels->add_scaled(a, x.values.data(), sum.values.data(), length);
      INFO(kernels->name << " length " << length);
      for (std::int64_t i = 0; i < length; ++i) REQUIRE(sum(0, i) == std::fma(a, x(0, i), y(0, i)));
      REQUIRE(sum(0, length) == y(0, length));
    }
  }
}

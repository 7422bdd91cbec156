// The plain loops against double precision and against values worked out by hand.
#include "common/device/reference_ops.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

using Positions = std::vector<std::int32_t>;

namespace {

constexpr double kUnit = 0x1p-24;  // largest relative error of rounding to f32

double distance(float found, double wanted) {
  return std::abs(static_cast<double>(found) - wanted);
}

}  // namespace

TEST_CASE("matmul is within its error bound of the exact sum") {
  const std::int64_t features = GENERATE(1, 7, 50, 256, 704, 4096);
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Matrix x = random_matrix(3, features, 1);
  const Tensor stored = to_tensor(random_matrix(5, features, 2), dtype);
  const Matrix w = to_matrix(stored);
  Matrix y(3, 5);
  reference::matmul(x.view(), stored, y.view(), SumBlocks::whole(features));
  // A product passes through at most `additions` roundings: those of its running sum (a block has
  // at most ceil(features / 8) features, shared by 16 sums), then 4 of the lanes, 3 of the blocks.
  const double block = std::ceil(static_cast<double>(features) / 8);
  const double additions = std::ceil(block / 16) + 4 + 3;
  for (std::int64_t m = 0; m < 3; ++m) {
    for (std::int64_t n = 0; n < 5; ++n) {
      double exact = 0, magnitude = 0;
      for (std::int64_t k = 0; k < features; ++k) {
        const double product = static_cast<double>(x(m, k)) * static_cast<double>(w(n, k));
        exact += product;
        magnitude += std::abs(product);
      }
      const double bound = additions * kUnit / (1 - additions * kUnit) * magnitude;
      REQUIRE(distance(y(m, n), exact) <= bound);
    }
  }
}

TEST_CASE("add and add_bias add element by element") {
  Matrix x(2, 3, {1, 2, 3, 4, 5, 6});
  reference::add(x.view(), Matrix(2, 3, {10, 20, 30, 40, 50, 60}).view());
  REQUIRE(x.values == std::vector<float>{11, 22, 33, 44, 55, 66});
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  reference::add_bias(x.view(), to_tensor(Matrix(1, 3, {1, 0, -2}), dtype));
  REQUIRE(x.values == std::vector<float>{12, 22, 31, 45, 55, 64});
}

TEST_CASE("silu and gelu follow their formulas") {
  const Matrix x(1, 6, {-20, -3, -0.5f, 0, 0.5f, 3});
  Matrix silu = x, gelu = x;
  reference::activate(silu.view(), Activation::silu);
  reference::activate(gelu.view(), Activation::gelu);
  for (std::int64_t n = 0; n < 6; ++n) {
    const auto value = static_cast<double>(x(0, n));
    const double exact_silu = value / (1 + std::exp(-value));
    const double exact_gelu = value * (1 + std::erf(value / std::sqrt(2.0))) / 2;
    // silu: e^x, a sum, a quotient. gelu: 1 + erf cancels for negative x, so its error is relative
    // to x itself, not to the result.
    REQUIRE(distance(silu(0, n), exact_silu) <= 8 * kUnit * std::abs(exact_silu));
    REQUIRE(distance(gelu(0, n), exact_gelu) <= 8 * kUnit * std::abs(value));
  }
  // The tanh form would give 2.9927 here.
  REQUIRE(distance(gelu(0, 5) + gelu(0, 1), 2.9919) < 5e-5);
}

TEST_CASE("gated_activation multiplies the activated gate by up") {
  const Matrix gate(1, 2, {3, -3}), up(1, 2, {2, -2});
  Matrix y(1, 2);
  reference::gated_activation(gate.view(), up.view(), y.view(), Activation::silu);
  REQUIRE(distance(y(0, 0), 3 / (1 + std::exp(-3.0)) * 2) < 1e-6);
  REQUIRE(distance(y(0, 1), 3 / (1 + std::exp(3.0)) * 2) < 1e-6);
}

TEST_CASE("rms_norm divides by the root of the mean square") {
  Matrix y(1, 2);
  // sqrt((3^2 + 4^2) / 2) = 3.535534; the weights are 1 and 2.
  reference::rms_norm(Matrix(1, 2, {3, 4}).view(), Matrix(1, 2, {1, 2}).view(), 0, y.view());
  REQUIRE(distance(y(0, 0), 0.848528) < 1e-6);
  REQUIRE(distance(y(0, 1), 2.262742) < 1e-6);

  const std::int64_t width = GENERATE(1, 48, 256, 1000);
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const float eps = 1e-2f;
  const Matrix x = random_matrix(3, width, 1);
  const Tensor stored = to_tensor(random_matrix(1, width, 2), dtype);
  const Matrix weight = to_matrix(stored);
  Matrix normed(3, width);
  reference::rms_norm(x.view(), stored, eps, normed.view());
  // The sum of squares: width / 16 + 4 roundings, halved by the root; then / + sqrt 1 / * *.
  const double bound = (std::ceil(static_cast<double>(width) / 16) + 4) / 2 + 6;
  for (std::int64_t m = 0; m < 3; ++m) {
    double squares = 0;
    for (std::int64_t n = 0; n < width; ++n) squares += std::pow(static_cast<double>(x(m, n)), 2);
    const double mean = squares / static_cast<double>(width);
    const double root = std::sqrt(mean + static_cast<double>(eps));
    for (std::int64_t n = 0; n < width; ++n) {
      const double exact = static_cast<double>(x(m, n)) / root * static_cast<double>(weight(0, n));
      REQUIRE(distance(normed(m, n), exact) <= bound * kUnit * std::abs(exact));
    }
  }
}

TEST_CASE("rms_norm_heads divides each head by its own root mean square") {
  // Two heads of 2. One norm over both of them would give 0.536656, 0.715542, 0, 1.788854.
  const std::vector<double> wanted{0.848528, 1.131371, 0, 1.414214};
  Matrix x(1, 4, {3, 4, 0, 10});
  reference::rms_norm_heads(x.view(), Matrix(1, 2, {1, 1}).view(), 0);
  for (std::int64_t n = 0; n < 4; ++n)
    REQUIRE(distance(x(0, n), wanted[static_cast<std::size_t>(n)]) < 1e-6);
  // One head on each of two ranks.
  for (std::int64_t head = 0; head < 2; ++head) {
    Matrix local(1, 2, head == 0 ? std::vector<float>{3, 4} : std::vector<float>{0, 10});
    reference::rms_norm_heads(local.view(), Matrix(1, 2, {1, 1}).view(), 0);
    REQUIRE(same_bits(local.view(), x.view().columns_in({2 * head, 2 * head + 2})));
  }

  // The bits of rms_norm on rows of one head, for strided rows and stored weights too.
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Tensor weight = to_tensor(random_matrix(1, 18, 3), dtype);
  const Matrix start = random_matrix(4, 3 * 18, 2);
  Framed framed(start, DType::f32);
  reference::rms_norm_heads(framed.view(), weight, 1e-2f);
  for (std::int64_t head = 0; head < 3; ++head) {
    const Range columns{18 * head, 18 * head + 18};
    Matrix wanted_head(4, 18);
    reference::rms_norm(start.view().columns_in(columns), weight, 1e-2f, wanted_head.view());
    REQUIRE(same_bits(framed.view().columns_in(columns), wanted_head.view()));
  }
  REQUIRE(framed.intact());
}

TEST_CASE("embed looks up the rows of its shard and leaves zeros for foreign ids") {
  // The shard holds the rows 4, 5 and 6 of the whole table: 6 is its last id, 7 the first foreign.
  const Matrix rows(3, 2, {40, 41, 50, 51, 60, 61});
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::vector<std::int32_t> ids{4, 7, 6, 3, 5, 0, -1};
  Matrix y = random_matrix(7, 2, 1);
  reference::embed(ids, to_tensor(rows, dtype), {4, 7}, y.view());
  REQUIRE(y.values == std::vector<float>{40, 41, 0, 0, 60, 61, 0, 0, 50, 51, 0, 0, 0, 0});
}

TEST_CASE("select_rows copies rows in any order and repeats them") {
  const Matrix x = random_matrix(4, 5, 1);
  const std::vector<std::int32_t> rows{3, 0, 3};
  Matrix y(3, 5);
  reference::select_rows(x.view(), rows, y.view());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    REQUIRE(same_bits(y.view().rows_in({row, row + 1}), x.view().rows_in({rows[i], rows[i] + 1})));
  }
}

TEST_CASE("rope rotates the pairs i and i + half by the angle of the position") {
  const auto device = make_cpu_device();
  const RopeTable table(*device, 4, 4, 10000);
  // Position 2: the angles of the pairs (1, 3) and (2, 4) are 2 and 0.02. Heads are alike.
  Matrix x(1, 8, {1, 2, 3, 4, 1, 2, 3, 4});
  reference::rope(x.view(), table, Positions{2});
  const std::vector<double> wanted{-3.144039, 1.919605, -0.339143, 4.039197};
  for (std::int64_t n = 0; n < 8; ++n)
    REQUIRE(distance(x(0, n), wanted[static_cast<std::size_t>(n % 4)]) < 1e-6);

  // Row i is the token at positions[i], whatever other rows there are.
  const Matrix start = random_matrix(3, 8, 1);
  Matrix all = start, last = start.rows_in({2, 3});
  reference::rope(all.view(), table, Positions{1, 0, 3});
  reference::rope(last.view(), table, Positions{3});
  REQUIRE(same_bits(all.view().rows_in({2, 3}), last.view()));

  // Position 0 changes nothing.
  Matrix first = start.rows_in({0, 1});
  reference::rope(first.view(), table, Positions{0});
  REQUIRE(same_bits(first.view(), start.view().rows_in({0, 1})));
}

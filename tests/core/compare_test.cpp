#include "common/core/compare.h"

#include <cmath>
#include <limits>
#include <string>

#include "common/core/error.h"
#include "common/core/matrix.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Matrix reference_matrix() {
  return Matrix(2, 3, {1, 2, 3, 4, 5, 6});
}

// The reference, and the reference with one element replaced.
Comparison compare_with(std::size_t index, float value, double bound) {
  Matrix result = reference_matrix();
  result.values[index] = value;
  return compare("y", result.view(), reference_matrix().view(), {bound, "test"});
}

}  // namespace

TEST_CASE("equal tensors pass with difference 0") {
  const Matrix m = reference_matrix();
  const Comparison c = compare("y", m.view(), m.view(), Tolerance::exact());
  CHECK(c.passed);
  CHECK(c.max_difference == 0);
  CHECK(c.name == "y");
  CHECK(c.shape == "[2, 3]");
}

TEST_CASE("one ulp is red where the tolerance is 0") {
  for (const std::size_t i : {0u, 5u}) {
    const float value = reference_matrix().values[i];
    CHECK_FALSE(compare_with(i, std::nextafter(value, kInfinity), 0).passed);
    CHECK_FALSE(compare_with(i, std::nextafter(value, -kInfinity), 0).passed);
  }
}

TEST_CASE("ten times the tolerance is red and a tenth of it green") {
  constexpr float kBound = 0.125f;
  for (const std::size_t i : {0u, 5u}) {
    const float value = reference_matrix().values[i];
    CHECK_FALSE(compare_with(i, value + 10 * kBound, kBound).passed);
    CHECK_FALSE(compare_with(i, value - 10 * kBound, kBound).passed);
    CHECK(compare_with(i, value + kBound / 10, kBound).passed);
    CHECK(compare_with(i, value + kBound, kBound).passed);  // the bound itself is allowed
  }
}

TEST_CASE("the place names the largest difference and both values") {
  Matrix result = reference_matrix();
  result(0, 1) += 0.25f;
  result(1, 2) -= 0.5f;
  const Comparison c = compare("y", result.view(), reference_matrix().view(), Tolerance::exact());
  CHECK(c.max_difference == 0.5);
  CHECK(c.place == "[1, 2]: 5.5, reference 6");
}

TEST_CASE("NaN is red on either side and on both") {
  for (const std::size_t i : {0u, 5u}) {
    Matrix with_nan = reference_matrix();
    with_nan.values[i] = kNan;
    const Matrix without = reference_matrix();
    const Tolerance generous{1e30, "test"};
    for (const Comparison& c : {compare("y", with_nan.view(), without.view(), generous),
                                compare("y", without.view(), with_nan.view(), generous),
                                compare("y", with_nan.view(), with_nan.view(), generous)}) {
      CHECK_FALSE(c.passed);
      CHECK(std::isnan(c.max_difference));
    }
  }
}

TEST_CASE("a NaN is not forgotten over a later difference") {
  Matrix result = reference_matrix();
  result(0, 0) = kNan;
  result(1, 2) = 1000;
  const Comparison c = compare("y", result.view(), reference_matrix().view(), {1e30, "test"});
  CHECK_FALSE(c.passed);
  CHECK_THAT(c.place, ContainsSubstring("[0, 0]"));
}

TEST_CASE("an infinity is red against a number") {
  CHECK_FALSE(compare_with(0, kInfinity, 1e30).passed);
  CHECK_FALSE(compare_with(5, -kInfinity, 1e30).passed);
}

TEST_CASE("different shapes are red also with equal elements") {
  const Matrix wide(2, 3, {1, 2, 3, 4, 5, 6}), high(3, 2, {1, 2, 3, 4, 5, 6}), more(3, 3);
  for (const Matrix* result : {&high, &more}) {
    const Comparison c = compare("y", result->view(), wide.view(), {1e30, "test"});
    CHECK_FALSE(c.passed);
    CHECK(std::isnan(c.max_difference));
    CHECK_THAT(c.place, ContainsSubstring(result->view().shape.to_string()));
    CHECK_THAT(c.place, ContainsSubstring("[2, 3]"));
  }
}

TEST_CASE("columns outside of a view are not compared") {
  Matrix left = reference_matrix(), right = reference_matrix();
  right(1, 0) = 99;
  const Range last_two{1, 3};
  CHECK(compare("y", left.view().columns_in(last_two), right.view().columns_in(last_two),
                Tolerance::exact())
            .passed);
  right(1, 2) = 99;
  CHECK_FALSE(compare("y", left.view().columns_in(last_two), right.view().columns_in(last_two),
                      Tolerance::exact())
                  .passed);
}

TEST_CASE("the bound of a reordered sum grows with terms and magnitude") {
  const double eps = std::numeric_limits<float>::epsilon();
  CHECK(Tolerance::exact().bound == 0);
  CHECK(Tolerance::reordered_sum(50, 3).bound == 150 * eps);
  // The values -1 and 3 have the mean 1 and the standard deviation 2.
  CHECK(Tolerance::of_deviation(0.5, Matrix(1, 2, {-1, 3}).view()).bound == 1);
  // Columns (1, -2) and (3, 4) of the products with x = [2, -1]: 2 + 2 and 6 + 4.
  CHECK(max_dot_magnitude(Matrix(1, 2, {2, -1}).view(), Matrix(2, 2, {1, -2, 3, 4}).view()) == 10);
}

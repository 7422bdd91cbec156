#include "common/core/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "common/core/matrix.h"

namespace tp {

Tolerance Tolerance::exact() {
  return {0, "same operations in the same order"};
}

Tolerance Tolerance::reordered_sum(std::int64_t num_terms, double max_magnitude) {
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  return {static_cast<double>(num_terms) * kEps * max_magnitude,
          fmt::format("{} terms * eps * {:.3g}", num_terms, max_magnitude)};
}

Tolerance Tolerance::of_deviation(double fraction, ConstTensorView reference) {
  const Matrix m = to_matrix(reference);
  const auto count = static_cast<double>(std::max<std::size_t>(m.values.size(), 1));
  double sum = 0, sum_of_squares = 0;
  for (const float v : m.values) sum += v;
  for (const float v : m.values) sum_of_squares += (v - sum / count) * (v - sum / count);
  const double deviation = std::sqrt(sum_of_squares / count);
  return {fraction * deviation,
          fmt::format("{:g} of standard deviation {:.3g}", fraction, deviation)};
}

Comparison compare(const std::string& name,
                   ConstTensorView result,
                   ConstTensorView reference,
                   const Tolerance& tolerance) {
  Comparison outcome{.name = name, .shape = reference.shape.to_string(), .tolerance = tolerance};
  if (result.shape != reference.shape) {
    outcome.max_difference = std::numeric_limits<double>::quiet_NaN();
    outcome.place = fmt::format("shape {} instead of {}", result.shape.to_string(), outcome.shape);
    return outcome;
  }
  const std::int64_t columns = reference.row_elements();
  for (std::int64_t i = 0; i < reference.rows(); ++i) {
    const float* got = result.row<float>(i);
    const float* want = reference.row<float>(i);
    for (std::int64_t j = 0; j < columns; ++j) {
      const double difference = std::abs(static_cast<double>(got[j]) - want[j]);
      // Written so that a NaN, which compares false with everything, takes the first branch and
      // stays.
      if (!(difference <= outcome.max_difference) && !std::isnan(outcome.max_difference)) {
        outcome.max_difference = difference;
        outcome.place = fmt::format("[{}, {}]: {:.9g}, reference {:.9g}", i, j, got[j], want[j]);
      }
    }
  }
  outcome.passed = outcome.max_difference <= tolerance.bound;
  return outcome;
}

double max_dot_magnitude(ConstTensorView x, ConstTensorView w) {
  const Matrix a = to_matrix(x), b = to_matrix(w);
  double largest = 0;
  for (std::int64_t m = 0; m < a.rows; ++m) {
    for (std::int64_t n = 0; n < b.rows; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k)
        sum += std::abs(static_cast<double>(a(m, k)) * b(n, k));
      largest = std::max(largest, sum);
    }
  }
  return largest;
}

}  // namespace tp

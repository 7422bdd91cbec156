// Comparing a result with a reference. NaN never passes. [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <string>

#include "common/core/tensor.h"

namespace tp {

// How far apart two results may be, and where that number comes from.
struct Tolerance {
  double bound = 0;
  std::string reason;

  // The same operations in the same order: not one bit may differ.
  static Tolerance exact();
  // Two sums of the same num_terms products in different orders, each within num_terms / 2 * eps of
  // the true value, relative to the sum of the products' magnitudes (at most max_magnitude).
  // Source: Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 4.2.
  static Tolerance reordered_sum(std::int64_t num_terms, double max_magnitude);
  // `fraction` of the standard deviation of the reference's elements.
  static Tolerance of_deviation(double fraction, ConstTensorView reference);
};

// The outcome of one comparison.
struct Comparison {
  std::string name;
  std::string shape;          // of the reference
  double max_difference = 0;  // NaN if either side holds one, or if the shapes differ
  std::string place;          // where the largest difference is, with both values
  Tolerance tolerance;
  bool passed = false;
};

// Compares all elements of two f32 tensors.
// Shapes: equal, or the comparison fails and says so.
Comparison compare(const std::string& name,
                   ConstTensorView result,
                   ConstTensorView reference,
                   const Tolerance& tolerance);

// The largest sum of |x[m, k] * w[n, k]| over k, for Tolerance::reordered_sum.
// Shapes: x [M, K], w [N, K], both f32 or bf16.
double max_dot_magnitude(ConstTensorView x, ConstTensorView w);

}  // namespace tp

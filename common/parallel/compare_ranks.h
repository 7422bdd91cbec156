// Comparing what every rank holds with one device. [introduced in chapter 01]
#pragma once

#include <string>
#include <vector>

#include "common/core/compare.h"
#include "common/parallel/run_ranks.h"

namespace tp {

// Compares the tensor `name` of every rank with the reference; the outcome is that of the worst
// rank, which `place` names.
Comparison compare_on_every_rank(const std::string& title,
                                 const std::vector<RankOutput>& ranks,
                                 const std::string& name,
                                 ConstTensorView reference,
                                 const Tolerance& tolerance);

// The same for a tensor that is split by columns: rank r holds the columns columns[r] of the
// reference. [chapter 03]
Comparison compare_column_shards(const std::string& title,
                                 const std::vector<RankOutput>& ranks,
                                 const std::string& name,
                                 ConstTensorView reference,
                                 const std::vector<Range>& columns,
                                 const Tolerance& tolerance);

// How close ranks come to one device, which is always the CPU device.
struct Accuracy {
  bool same_order = true;  // sums are made in the order of one device; only the CPU does that
  // How far off an element may be, in standard deviations of the reference, if it is not.
  double deviations = 2e-5;
  // A GPU rounds activations before products with weights of 16 bits, and keys and values that it
  // stores in 16 bits.
  bool to_16_bits = false;

  // Of ranks on the device of the options, with weights stored in this dtype, when activations, keys
  // or values go through `roundings` roundings on their way to what is compared.
  static Accuracy of(const Options& options, DType weights, std::int64_t roundings);

  // For what one device computes in the same steps: exact, or on a GPU, which has an order of its
  // own, a part of the standard deviation of the reference (notes/numerics.md).
  Tolerance same_steps(ConstTensorView reference) const;
  // For a row-parallel sum: exact on the CPU where tp_size divides the sum blocks, because both then
  // add in the same order; else `reordered`. On a GPU as above.
  Tolerance row_parallel(int tp_size, const Tolerance& reordered, ConstTensorView reference) const;
};

}  // namespace tp

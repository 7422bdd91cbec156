#include "common/parallel/compare_ranks.h"

#include <cmath>

#include <fmt/format.h>

#include "common/device/sum_blocks.h"

namespace tp {

namespace {

// The outcome of the worst rank; part(r) is what rank r must hold.
template <class Part>
Comparison worst_rank(const std::string& title,
                      const std::vector<RankOutput>& ranks,
                      const std::string& name,
                      const Part& part,
                      const Tolerance& tolerance) {
  Comparison worst;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Comparison here = compare(title, ranks[r].tensor(name), part(r), tolerance);
    here.place = fmt::format("rank {} {}", r, here.place);
    // The first rank that fails is named; among passing ones the largest difference.
    const bool worse = !here.passed || here.max_difference > worst.max_difference;
    if (r == 0 || (worst.passed && worse)) worst = here;
  }
  return worst;
}

}  // namespace

Comparison compare_on_every_rank(const std::string& title,
                                 const std::vector<RankOutput>& ranks,
                                 const std::string& name,
                                 ConstTensorView reference,
                                 const Tolerance& tolerance) {
  const auto whole = [&](std::size_t) { return reference; };
  return worst_rank(title, ranks, name, whole, tolerance);
}

Comparison compare_column_shards(const std::string& title,
                                 const std::vector<RankOutput>& ranks,
                                 const std::string& name,
                                 ConstTensorView reference,
                                 const std::vector<Range>& columns,
                                 const Tolerance& tolerance) {
  const auto part = [&](std::size_t r) { return reference.columns_in(columns.at(r)); };
  Comparison worst = worst_rank(title, ranks, name, part, tolerance);
  worst.shape = reference.shape.to_string();
  return worst;
}

// Rounding to 16 bits changes a value by up to u of itself, u = 2^-9 for bf16 and 2^-12 for f16, and
// on average, as root of the mean square, by u / sqrt(3). A product sums many of these independent
// errors just as it sums the values, so its result is off by the same part of its own size. n
// roundings in a row add up like random steps, to sqrt(n) of one. The worst of up to a million
// elements is 5 times as far off as is usual, in a row that may be 1.5 times as large as is usual.
// See notes/numerics.md for what was measured.
Accuracy Accuracy::of(const Options& options, DType weights, std::int64_t roundings) {
  Accuracy accuracy;
  if (options.device != "cuda") return accuracy;
  accuracy.same_order = false;
  const auto rounds_to = [&](DType dtype) {
    return weights == dtype || options.kv_dtype == name_of(dtype);
  };
  accuracy.to_16_bits = rounds_to(DType::bf16) || rounds_to(DType::f16);
  if (accuracy.to_16_bits) {
    const double u = rounds_to(DType::bf16) ? 0x1p-9 : 0x1p-12;
    accuracy.deviations = 5 * 1.5 * u * std::sqrt(static_cast<double>(roundings) / 3);
  }
  return accuracy;
}

Tolerance Accuracy::same_steps(ConstTensorView reference) const {
  return same_order ? Tolerance::exact() : Tolerance::of_deviation(deviations, reference);
}

Tolerance Accuracy::row_parallel(int tp_size,
                                 const Tolerance& reordered,
                                 ConstTensorView reference) const {
  if (!same_order) return same_steps(reference);
  return kSumBlocks % tp_size == 0 ? Tolerance::exact() : reordered;
}

}  // namespace tp

#include "common/parallel/compare_ranks.h"

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

Tolerance row_parallel_tolerance(int tp_size, const Tolerance& reordered) {
  return kSumBlocks % tp_size == 0 ? Tolerance::exact() : reordered;
}

}  // namespace tp

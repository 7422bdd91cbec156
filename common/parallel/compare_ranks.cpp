#include "common/parallel/compare_ranks.h"

#include <fmt/format.h>

#include "common/device/sum_blocks.h"

namespace tp {

Comparison compare_on_every_rank(const std::string& title,
                                 const std::vector<RankOutput>& ranks,
                                 const std::string& name,
                                 ConstTensorView reference,
                                 const Tolerance& tolerance) {
  Comparison worst;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Comparison here = compare(title, ranks[r].tensor(name), reference, tolerance);
    here.place = fmt::format("rank {} {}", r, here.place);
    // The first rank that fails is named; among passing ones the largest difference.
    const bool worse = !here.passed || here.max_difference > worst.max_difference;
    if (r == 0 || (worst.passed && worse)) worst = here;
  }
  return worst;
}

Tolerance row_parallel_tolerance(int tp_size, const Tolerance& reordered) {
  return kSumBlocks % tp_size == 0 ? Tolerance::exact() : reordered;
}

}  // namespace tp

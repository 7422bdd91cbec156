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

// The tolerance for a row-parallel sum against one device: exact where tp_size divides the sum
// blocks, because both then add in the same order; else `reordered`.
Tolerance row_parallel_tolerance(int tp_size, const Tolerance& reordered);

}  // namespace tp

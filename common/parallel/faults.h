// Mistakes made on purpose. [introduced in chapter 01]
//
// A fault puts wrong values in at a seam: between a rank and its communicator, or in what a rank
// takes for its shard. The code that computes and the code that compares do not know of it.
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/parallel/rank_context.h"
#include "common/parallel/run_ranks.h"

namespace tp {

// The faults that every chapter knows: the last rank's first all_reduce does not fit the others'.
// "mismatched_collective" alone means the wrong count.
std::vector<Fault> mismatched_collective_faults();

// The launch, with a communicator that makes the mistake. Known: skip_all_reduce,
// concat_instead_of_sum, activation_before_sum and the mismatched_collective family; another name
// changes nothing.
Launch with_fault(Launch launch, const std::string& fault);

// What a row-parallel bias is multiplied with when it is loaded: 1, or with bias_added_tp_times the
// number of ranks, as if each rank had added it before the sum.
float bias_factor(const RankContext& ctx, const std::string& fault);

// Whose part of a row-parallel weight this rank loads: its own, or with shards_swapped the one of
// the rank opposite, if that has as many of the `features` as this rank.
RankContext row_shard_owner(const RankContext& ctx,
                            const std::string& fault,
                            std::int64_t features);

}  // namespace tp

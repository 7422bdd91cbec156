// Mistakes with the plan of a step, made on purpose. [introduced in chapter 05]
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/parallel/run_ranks.h"

namespace tp {

// rank_chooses_own_blocks and shuffled_rows.
std::vector<Fault> plan_faults();

// The launch, with a group on rank 1 that changes every plan it receives in which two or more
// sequences run. Another name changes nothing.
//
// rank_chooses_own_blocks: the first sequence of the plan gets the last block of the last sequence
//                          in place of its own last one, as if rank 1 had asked a block manager of
//                          its own.
// shuffled_rows:           rank 1 runs the sequences in reverse order.
Launch with_plan_fault(Launch launch, const std::string& fault, std::int64_t block_size);

}  // namespace tp

// A rank with names of its own for the blocks.
#pragma once

#include "common/parallel/run_ranks.h"

namespace tp {

// The launch, with a group on rank 1 that turns the blocks 0, 1, ... of each plan it receives into
// num_blocks - 1, num_blocks - 2, ..., and the slots with them. No two blocks get one name.
Launch with_renamed_blocks(Launch launch, std::int64_t num_blocks, std::int64_t block_size);

}  // namespace tp

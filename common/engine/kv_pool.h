// How many blocks the KV pools of the ranks have. [introduced in chapter 05]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/parallel/rank_context.h"

namespace tp {

// What one rank can spend on its KV cache.
struct KvBudget {
  std::int64_t bytes = 0;            // that are left for it on this rank's device
  std::int64_t bytes_per_block = 0;  // of one block in all layers, with the heads of this rank
};

// The size of the pools. It is the same on every rank, because rank 0 hands out block ids that must
// be good on all of them: the rank with the least room decides for all.
struct KvPoolSize {
  std::int64_t num_blocks = 0;
  std::vector<std::int64_t> blocks_of_rank;  // what each rank has room for
  std::optional<int> limiting_rank;  // the first with the least room; none if all have the same

  // "20480 blocks on every rank: rank 1 limits, others have room for up to 40960".
  std::string to_string() const;
};

// The size that fits on all ranks, from the budgets in rank order.
// Errors: tp::Error (input) that names every rank without room for one block.
KvPoolSize common_pool_size(std::span<const KvBudget> budgets);

// The same, where each rank knows its own budget only.
// Ranks:  every rank; all get the same.
// Moves:  16 bytes per rank over the host group, once.
// Errors: as above, on rank 0; Aborted on the others.
KvPoolSize agree_on_pool_size(const RankContext& ctx, const KvBudget& mine);

}  // namespace tp

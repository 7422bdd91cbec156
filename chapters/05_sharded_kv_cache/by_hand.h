// Attention over a paged cache that is split by heads, by hand: plain matrices, no library.
#pragma once

#include <vector>

#include "common/core/matrix.h"
#include "common/engine/block_manager.h"

namespace tp {

// One rank's pool: a row for each slot, with this rank's KV heads side by side.
struct HandPool {
  Matrix keys, values;  // [num_blocks * block_size, kv heads of this rank * head_dim]
};

// A sequence, with the queries, keys and values of all heads.
struct HandSequence {
  Matrix q;     // [tokens, heads * head_dim]
  Matrix k, v;  // [tokens, kv heads * head_dim]
  BlockTable table;
};
struct HandSizes {
  std::int64_t heads, kv_heads, head_dim, block_size, num_blocks;
};

// Empty pools of all ranks.
std::vector<HandPool> make_hand_pools(const HandSizes& sizes, int ranks);

// Every rank writes and reads its own heads in its own pool; the table is the same for all.
// Shapes: -> [tokens, heads * head_dim], the ranks' heads side by side.
Matrix attend_by_hand(const HandSequence& seq,
                      const HandSizes& sizes,
                      std::vector<HandPool>& pools);

}  // namespace tp

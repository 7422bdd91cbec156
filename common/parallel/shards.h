// Who holds what: the one place that divides by the number of ranks. [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/range.h"
#include "common/device/head_shard.h"
#include "common/device/sum_blocks.h"

namespace tp {

// The rank's part of `total` features, as global indices. See even_split (sum_blocks.h).
inline Range shard_range(std::int64_t total, int rank, int tp_size) {
  return even_split(total, rank, tp_size);
}

// The parts of all ranks, in rank order.
std::vector<Range> shard_ranges(std::int64_t total, int tp_size);

// By how much the largest part exceeds the mean, in per cent: 0 where tp_size divides total.
double imbalance_percent(std::int64_t total, int tp_size);

// How many query heads of a model read the same KV head.
// Errors: tp::Error (input) naming both sizes unless kv_heads divides heads.
std::int64_t heads_per_kv_head(std::int64_t heads, std::int64_t kv_heads);

// The rank's query heads, and exactly the KV heads that they read. [chapter 03]
// One rule for the even case, for replication when there are more ranks than KV heads, and for
// uneven splits: query heads are split in order, and KV heads follow.
// Errors: as heads_per_kv_head.
HeadShard head_shard(std::int64_t heads, std::int64_t kv_heads, int rank, int tp_size);

// The rank's rows of a vocabulary that is padded to a multiple of tp_size. [chapter 06]
struct VocabShard {
  Range rows;              // ids, including pads at the end of the last shards
  std::int64_t valid = 0;  // real ids in all shards: logits of ids from here on do not count
};
VocabShard vocab_shard(std::int64_t vocab_size, int rank, int tp_size);

// Refuses `tp_size` ranks for `total` features that do not divide, unless `uneven`, and more ranks
// than features in any case.
// Errors: tp::Error (input) naming the size, with the sizes that work and the hint --uneven.
void check_divides(const std::string& name, std::int64_t total, std::int64_t tp_size, bool uneven);

// The sizes of a model that tensor parallelism divides.
struct ShardedSizes {
  std::int64_t heads = 0;         // num_attention_heads
  std::int64_t kv_heads = 0;      // num_key_value_heads
  std::int64_t intermediate = 0;  // intermediate_size; 0 if only the heads are in question
};

// Why tp_size ranks cannot share the model: one line per reason, none if they can. Query heads and
// intermediate features must divide evenly; KV heads must, or be replicated evenly. The vocabulary
// is padded, so it is never a reason. With `uneven` only more ranks than query heads are refused.
// KV heads that do not divide the query heads are a reason at any tp_size, and then the only one.
std::vector<std::string> tp_problems(const ShardedSizes& sizes, int tp_size, bool uneven);

// All tp sizes without a problem.
std::vector<int> usable_tp_sizes(const ShardedSizes& sizes);

// Errors: tp::Error (input) with all problems, the usable sizes and the hint --uneven; or as
//         heads_per_kv_head.
void check_tp_size(const ShardedSizes& sizes, int tp_size, bool uneven);

}  // namespace tp

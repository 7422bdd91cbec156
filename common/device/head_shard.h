// Which attention heads a device computes. [introduced in chapter 03]
#pragma once

#include <cstdint>

#include "common/core/range.h"

namespace tp {

// A contiguous range of a model's query heads, and the KV heads that they read. Query head h reads
// KV head h / group. The ranges are global, so that this holds for every shard, even or not:
// rank 1 of 3 with 8 query and 2 KV heads has the query heads 2..4 on the KV heads 0, 0, 1.
struct HeadShard {
  Range query;             // global query heads
  Range kv;                // global KV heads
  std::int64_t group = 1;  // query heads per KV head, of the whole model

  // The local KV head that the local query head reads.
  std::int64_t kv_local(std::int64_t query_local) const {
    return (query.begin + query_local) / group - kv.begin;
  }
};

}  // namespace tp

// The tokens of this chapter: three sequences, computed at once or one token after the other.
#pragma once

#include <array>
#include <vector>

#include "common/device/device.h"

namespace tp {

// How many tokens each sequence has. Row r of x is the r-th token of sequence 0, 1, 2 put one
// behind the other.
inline constexpr std::array<std::int64_t, 3> kLengths{5, 3, 1};
inline constexpr std::int64_t kTokens = 9, kLongest = 5;

inline constexpr double kRopeTheta = 10000;

// Tokens that are computed together, and which rows of x they are.
struct Step {
  Batch batch{kLongest};
  std::vector<std::int32_t> rows;
};

// Prefill: all tokens of all sequences in one step.
Step prefill();

// Decode: step t computes token t of each sequence that is so long. 5 steps of 3, 2, 2, 1, 1 rows.
std::vector<Step> decode();

// Keys and values of one layer, as many heads as the device has. One block per sequence, with room
// for the longest one: a contiguous cache.
class SequenceCache {
 public:
  SequenceCache(Device& device, std::int64_t kv_heads, std::int64_t head_dim);
  KvLayer layer() { return {keys_, values_}; }

 private:
  Tensor keys_, values_;
};

}  // namespace tp

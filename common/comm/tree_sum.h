// The order in which the partial sums of ranks are added. [introduced in chapter 01]
#pragma once

#include <cstdint>

namespace tp {

// Adds the values first, ..., first + count - 1 as a binary tree: (first half) + (second half),
// each half in the same way. value(i, out) writes the floats of operand i to out[0..length); the
// sums end up in `sum`. `length` is at most kTreeSumLength.
//
// matmul adds its sum blocks in the same tree, and the blocks of a rank are a subtree of it. So two
// ranks that add their halves get, bit for bit, what one device gets that adds all blocks itself.
inline constexpr std::int64_t kTreeSumLength = 256;

template <class Value>
void tree_sum(int first, int count, const Value& value, float* sum, std::int64_t length) {
  if (count == 1) {
    value(first, sum);
    return;
  }
  float right[kTreeSumLength];
  tree_sum(first, count / 2, value, sum, length);
  tree_sum(first + count / 2, count - count / 2, value, right, length);
  for (std::int64_t i = 0; i < length; ++i) sum[i] += right[i];
}

}  // namespace tp

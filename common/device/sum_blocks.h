// In which order matmul adds over the input features. [introduced in chapter 01]
//
// The input features are cut into 8 blocks, each block is summed for itself, and the 8 sums are
// added as a binary tree. Where tp divides 8, each rank of a row-parallel layer holds whole blocks,
// in fact a subtree; the all-reduce adds the ranks in the rest of the tree. So tp = 1, 2, 4 and 8
// make the same additions in the same order, and their results are equal bit for bit.
#pragma once

#include <array>
#include <cstdint>

#include "common/core/range.h"

namespace tp {

inline constexpr int kSumBlocks = 8;

// Part `part` of `parts` when `total` things are split as evenly as possible, in order. It begins
// at floor(total * part / parts). Then each part of a coarse split is a union of parts of a finer
// one whenever the finer count is a multiple of the coarser; the usual rule, "the first parts get
// one more", does not have this property.
inline Range even_split(std::int64_t total, int part, int parts) {
  return {total * part / parts, total * (part + 1) / parts};
}

// The sum blocks of one matmul: block b is the input features [edge[b], edge[b + 1]) of x and weight.
struct SumBlocks {
  int count = 0;
  std::array<std::int64_t, kSumBlocks + 1> edge{};

  // All blocks of `features` input features that are split in units (whole heads for o_proj).
  // Errors: tp::Error if the unit does not divide the features.
  static SumBlocks whole(std::int64_t features, std::int64_t unit = 1);

  // The blocks that the rank holds which has the features of even_split(features / unit, rank,
  // tp_size); edges count from the begin of its shard. Where tp does not divide 8, blocks are cut.
  static SumBlocks of_rank(std::int64_t features, int rank, int tp_size, std::int64_t unit = 1);
};

}  // namespace tp

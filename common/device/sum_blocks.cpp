#include "common/device/sum_blocks.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

SumBlocks SumBlocks::whole(std::int64_t features, std::int64_t unit) {
  return of_rank(features, 0, 1, unit);
}

SumBlocks SumBlocks::of_rank(std::int64_t features, int rank, int tp_size, std::int64_t unit) {
  if (unit < 1 || features % unit != 0)
    throw Error(ErrorKind::rank,
                fmt::format("{} input features are not a multiple of {}", features, unit));
  const std::int64_t units = features / unit;
  const Range shard = even_split(units, rank, tp_size);
  SumBlocks blocks;
  const auto add = [&](Range block) {
    blocks.edge[static_cast<std::size_t>(++blocks.count)] = (block.end - shard.begin) * unit;
  };
  for (int b = 0; b < kSumBlocks; ++b) {
    const Range block = even_split(units, b, kSumBlocks);
    if (kSumBlocks % tp_size == 0) {  // whole blocks, also the empty ones of very few features
      if (even_split(kSumBlocks, rank, tp_size).contains(b)) add(block);
    } else {
      const Range mine{std::max(block.begin, shard.begin), std::min(block.end, shard.end)};
      if (mine.size() > 0) add(mine);
    }
  }
  return blocks;
}

}  // namespace tp

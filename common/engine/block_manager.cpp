#include "common/engine/block_manager.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

BlockManager::BlockManager(std::int64_t num_blocks, std::int64_t block_size)
    : block_size_(block_size), references_(static_cast<std::size_t>(num_blocks)) {
  for (std::int64_t block = num_blocks - 1; block >= 0; --block)
    free_.push_back(static_cast<std::int32_t>(block));
}

std::int32_t BlockManager::references(std::int32_t block) const {
  return references_.at(static_cast<std::size_t>(block));
}

bool BlockManager::grow(BlockTable& table, std::int64_t tokens) {
  const std::int64_t missing = blocks_for(tokens, block_size_) - std::ssize(table);
  if (missing > free_blocks()) return false;
  for (std::int64_t i = 0; i < missing; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
    references_[static_cast<std::size_t>(table.back())] = 1;
  }
  peak_used_ = std::max(peak_used_, used_blocks());
  return true;
}

BlockTable BlockManager::share(const BlockTable& table, std::int64_t tokens) {
  BlockTable shared(table.begin(),
                    table.begin() + std::min(tokens / block_size_, std::ssize(table)));
  for (const std::int32_t block : shared) ++references_.at(static_cast<std::size_t>(block));
  return shared;
}

void BlockManager::release(BlockTable& table) {
  // From the end, so that the next table gets them in the same order.
  for (; !table.empty(); table.pop_back()) {
    std::int32_t& references = references_.at(static_cast<std::size_t>(table.back()));
    if (references == 0)
      throw Error(ErrorKind::rank,
                  fmt::format("block {} is given back, but it is free already", table.back()));
    if (--references == 0) free_.push_back(table.back());
  }
}

}  // namespace tp

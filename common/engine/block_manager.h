// Which blocks of the KV cache are free, and who has the others. [introduced in chapter 05]
#pragma once

#include <cstdint>
#include <vector>

#include "common/device/batch.h"

namespace tp {

// The blocks of one sequence, in the order of its tokens.
using BlockTable = std::vector<std::int32_t>;

// Hands out block ids. It holds integers only, on rank 0 only: the other ranks learn the tables
// from the plan of each step. A block may belong to several tables (their sequences begin with the
// same tokens); it is free again when the last of them has given it back.
class BlockManager {
 public:
  BlockManager(std::int64_t num_blocks, std::int64_t block_size);

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t block_size() const { return block_size_; }
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t used_blocks() const { return num_blocks() - free_blocks(); }
  std::int64_t peak_used_blocks() const { return peak_used_; }
  // In how many tables the block is.
  std::int32_t references(std::int32_t block) const;

  // Lengthens the table until it has room for `tokens` tokens. Returns false, and changes nothing,
  // if too few blocks are free. A block that was given back last is handed out first.
  bool grow(BlockTable& table, std::int64_t tokens);

  // A second table on the blocks that the first `tokens` tokens fill completely. The last block,
  // if it is not full, stays with its sequence, which goes on writing into it.
  BlockTable share(const BlockTable& table, std::int64_t tokens);

  // Gives all blocks of the table back, and empties it.
  // Errors: tp::Error (rank) if one of them is free already.
  void release(BlockTable& table);

 private:
  std::int64_t block_size_;
  std::int64_t peak_used_ = 0;
  std::vector<std::int32_t> references_;  // of each block
  std::vector<std::int32_t> free_;        // the next one is the last
};

}  // namespace tp

// Tokens of several sequences that a device runs together, and where their keys and values lie.
// [introduced in chapter 03; with more than one block per sequence, chapter 05]
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/core/range.h"
#include "common/core/tensor.h"

namespace tp {

// The keys and values of one layer: its part of the KV pool, in blocks. A block has room for
// block_size tokens of one sequence, and one head's part of it is contiguous.
struct KvLayer {
  TensorView keys;    // [num_blocks, kv_heads_local, block_size, head_dim]
  TensorView values;  // the same

  std::int64_t num_blocks() const { return keys.shape[0]; }
  std::int64_t kv_heads_local() const { return keys.shape[1]; }
  std::int64_t block_size() const { return keys.shape[2]; }
  std::int64_t head_dim() const { return keys.shape[3]; }
};

// Token `position` of a sequence lies in block block_table[position / block_size], and there in
// place position % block_size. Its slot is block * block_size + place.
inline std::int64_t slot_of(std::span<const std::int32_t> block_table,
                            std::int64_t position,
                            std::int64_t block_size) {
  return block_table[static_cast<std::size_t>(position / block_size)] * block_size +
         position % block_size;
}

// How many blocks hold `tokens` tokens.
inline std::int64_t blocks_for(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The rows of one sequence in a batch: new tokens at the positions first_position, ... Its earlier
// tokens are in the KV cache.
struct SequenceRows {
  Range rows;
  std::int64_t first_position = 0;
  std::span<const std::int32_t> block_table;  // block ids, in the order of the tokens
};

// A batch: one row per new token, the rows of a sequence one behind the other.
struct BatchView {
  std::span<const std::int32_t> positions;     // of each row's token in its sequence
  std::span<const std::int32_t> slot_mapping;  // where each row's key and value are put
  std::span<const SequenceRows> sequences;

  std::int64_t rows() const { return static_cast<std::int64_t>(positions.size()); }
};

// The positions that the token at `position` attends to: its own and those before it, with a sliding
// window of W tokens the last W of them. [chapter 06]
inline constexpr std::int64_t kNoWindow = 0;
inline Range attended_positions(std::int64_t position, std::int64_t window) {
  const std::int64_t end = position + 1;
  return {window == kNoWindow ? 0 : std::max<std::int64_t>(0, end - window), end};
}

// Builds a batch, sequence by sequence, and owns what its view shows. Block tables are not copied:
// they must outlive the view.
class Batch {
 public:
  explicit Batch(std::int64_t block_size) : block_size_(block_size) {}

  // Adds `tokens` rows of a sequence whose first `first_position` tokens are in the cache.
  void add(std::span<const std::int32_t> block_table,
           std::int64_t first_position,
           std::int64_t tokens);

  // Valid until the batch is changed.
  BatchView view() const { return {positions_, slot_mapping_, sequences_}; }

 private:
  std::int64_t block_size_;
  std::vector<std::int32_t> positions_, slot_mapping_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace tp

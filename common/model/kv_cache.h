// One rank's keys and values of all sequences, in blocks. [introduced in chapter 05]
#pragma once

#include <cstdint>

#include "common/device/device.h"

namespace tp {

// The sizes of a rank's KV cache.
struct KvLayout {
  std::int64_t layers = 0;
  std::int64_t kv_heads_local = 0;
  std::int64_t head_dim = 0;
  std::int64_t block_size = 0;  // tokens per block
  std::int64_t num_blocks = 0;  // the same on every rank
  DType dtype = DType::f32;

  // Numbers in the keys and values of one block: 2 * kv_heads_local * block_size * head_dim in each
  // layer.
  std::int64_t elements_per_block() const {
    return layers * 2 * kv_heads_local * block_size * head_dim;
  }
  // The same in bytes, in one layer and in all.
  std::int64_t bytes_per_block_and_layer() const {
    return 2 * kv_heads_local * block_size * head_dim * static_cast<std::int64_t>(size_of(dtype));
  }
  std::int64_t bytes_per_block() const { return layers * bytes_per_block_and_layer(); }
};

// Memory for num_blocks blocks in each layer, allocated once. Which tokens lie in which block is
// not known here: rank 0 decides, and says so with every batch. A block id means the same tokens
// on every rank and in every layer, and each rank has its own KV heads of them.
class KvCache {
 public:
  KvCache(Device& device, const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  KvLayer layer(std::int64_t layer);

 private:
  KvLayout layout_;
  Tensor memory_;  // [layers * 2 * num_blocks, kv_heads_local, block_size, head_dim]
};

}  // namespace tp

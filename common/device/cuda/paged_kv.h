// The paged KV cache and the sequences in it, as kernels see them. [introduced in chapter 03]
#pragma once

#include <cstdint>

#include "common/core/dtype.h"

namespace tp::cuda {

// The keys and values of one layer: KvLayer (batch.h) in device memory, f32, bf16 or f16.
// Shapes: keys, values [num_blocks, heads, block_size, head_dim].
struct PagedKv {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::f32;
  std::int64_t block_stride = 0;  // elements from one block to the next, at least those of a block
  std::int64_t heads = 0;         // KV heads of this rank
  std::int64_t block_size = 0;    // tokens
  std::int64_t head_dim = 0;
};

// The largest head_dim that the attention kernels serve.
inline constexpr std::int64_t kMaxHeadDim = 256;

// SequenceRows (batch.h) in device memory: `rows` new tokens at first_position, ..., which are the
// rows `row`, ... of the batch. The ids of the sequence's blocks stand in one table for all
// sequences, from table_begin on. A sequence of 0 rows fills up a batch of fixed size; nothing is
// read or written for it.
struct DeviceSequence {
  std::int32_t row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;
  std::int32_t table_begin = 0;
};

// The sequences of a step. Both arrays are in device memory, so that a captured graph sees the
// values of the step it is replayed for.
struct DeviceSequences {
  const DeviceSequence* sequences = nullptr;
  const std::int32_t* block_tables = nullptr;
};

}  // namespace tp::cuda

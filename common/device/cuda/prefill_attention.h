// Launcher of attention for sequences with several new tokens. [introduced in chapter 03]
//
// Tiles of rows meet tiles of keys, with a softmax that is corrected as larger scores come up. In
// f32, without tensor cores.
// Source: Dao et al. 2022, "FlashAttention".
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/device/cuda/device_rows.h"
#include "common/device/cuda/paged_kv.h"
#include "common/device/head_shard.h"

namespace tp::cuda {

// A block of the grid serves one head of at most this many rows of a sequence.
inline constexpr std::int64_t kPrefillTileRows = 64;

// Which rows: those from first_row on, counted inside the sequence, up to kPrefillTileRows of them.
struct PrefillTile {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;
};

struct PrefillAttention {
  ConstRows q;  // [rows of the batch, query heads * head_dim]
  PagedKv cache;
  HeadShard heads;
  DeviceSequences sequences;
  const PrefillTile* tiles = nullptr;  // in device memory; together all rows to serve, each once
  std::int64_t num_tiles = 0;
  std::int64_t window = 0;  // tokens, 0 for none
  Rows y;                   // like q
};

// Causal attention of the rows of all tiles to the cache, which holds their own keys and values
// already.
// Moves: for each query head and tile, the keys and values that the tile's rows see. Heads of one
//        group find them in the L2 cache.
// Errors: tp::Error (input) if head_dim is above kMaxHeadDim.
void prefill_attention(const PrefillAttention& args, cudaStream_t stream);

}  // namespace tp::cuda

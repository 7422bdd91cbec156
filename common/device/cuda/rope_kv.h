// Launcher of the kernel that rotates q and k and stores k and v. [introduced in chapter 03]
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/device/cuda/device_rows.h"
#include "common/device/cuda/paged_kv.h"

namespace tp::cuda {

// Parts that are absent (0 heads, a null pointer) are left out, so that one kernel serves rotating
// alone and storing alone too.
struct RopeKv {
  std::int64_t rows = 0;
  std::int64_t head_dim = 0;

  std::int64_t query_heads = 0;
  Rows q;  // [rows, query_heads * head_dim]
  std::int64_t kv_heads = 0;
  Rows k;       // [rows, kv_heads * head_dim]
  ConstRows v;  // the same; read only if it is stored

  // Rotation: each head of row i as the token at positions[i]. Left out if positions is null.
  const std::int32_t* positions = nullptr;
  const float* cos = nullptr;  // [positions of the table, head_dim / 2], contiguous
  const float* sin = nullptr;

  // Storing: k, rotated, and v of row i go to slot slots[i] of the cache, rounded to its dtype;
  // a negative slot stores nothing. Left out if slots is null.
  const std::int32_t* slots = nullptr;
  PagedKv cache;  // cache.heads == kv_heads
};

// Rotates q and k in place and stores k and v.
// Moves: 8 bytes per element of q and k, 4 per element of v, and one cache element for each of k
//        and v. Rotating and storing one after the other would read k twice.
void rope_store_kv(const RopeKv& args, cudaStream_t stream);

}  // namespace tp::cuda

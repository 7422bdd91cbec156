// Launcher of attention for sequences that have one new token each. [introduced in chapter 03]
//
// A decode step reads the whole cache of each sequence to compute one row: it lives from memory
// bandwidth. So the query heads of a KV head are served together, and its keys and values are read
// once; and a long context is cut into splits that several multiprocessors read at the same time.
// Source: Dao et al. 2023, "Flash-Decoding for long-context inference".
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/device/cuda/device_rows.h"
#include "common/device/cuda/paged_kv.h"
#include "common/device/head_shard.h"

namespace tp::cuda {

// The grid follows from these sizes alone; what a sequence is at comes from device memory. So a
// captured launch can be replayed for the next step.
struct DecodeAttention {
  ConstRows q;  // [rows of the batch, query heads * head_dim]
  PagedKv cache;
  HeadShard heads;
  DeviceSequences sequences;  // those to serve, with rows == 1, or 0 to leave one out
  std::int64_t num_sequences = 0;
  std::int64_t window = 0;    // tokens, 0 for none
  std::int64_t splits = 1;    // from decode_splits
  void* workspace = nullptr;  // decode_workspace_bytes
  Rows y;                     // like q
};

// How many parts to cut each context into, so that the GPU is busy and no part is tiny. 1 if there
// are sequences enough.
std::int64_t decode_splits(std::int64_t num_sequences,
                           std::int64_t kv_heads,
                           std::int64_t longest_context_tokens,
                           int multiprocessors);

// The partial results of all splits; 0 if there is but one. Aligned to 16 bytes.
std::int64_t decode_workspace_bytes(std::int64_t num_sequences,
                                    std::int64_t query_heads,
                                    std::int64_t head_dim,
                                    std::int64_t splits);

// y = softmax(q k^T / sqrt(head_dim)) v over the tokens that each sequence's new token sees. Rows
// of y that belong to no sequence are left alone.
// Moves: each key and value that is seen, once.
// Errors: tp::Error (input) if head_dim is above kMaxHeadDim.
void decode_attention(const DecodeAttention& args, cudaStream_t stream);

}  // namespace tp::cuda

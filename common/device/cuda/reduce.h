// Launcher of the sum over ranks that can read each other's memory. [introduced in chapter 01]
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/core/dtype.h"
#include "common/core/range.h"

namespace tp::cuda {

inline constexpr int kMaxReduceRanks = 64;

// Where each rank's operand lies: count pointers to arrays of one length and dtype.
struct ReduceSources {
  const void* rank[kMaxReduceRanks] = {};
  int count = 0;
};

// out[i] = sum over the ranks of source[i], for the elements i of `elements`; the same i addresses
// out and the sources. Added as the tree of comm/tree_sum.h, so that every rank gets the same bits,
// those of ThreadCommunicator; bf16 is widened, summed in f32 and rounded once.
// In place: out may be one of the sources.
// Shapes: f32 or bf16; 1 <= count <= kMaxReduceRanks.
// Moves: (count + 1) elements for each one of out.
// Errors: tp::Error (input) for another dtype or count.
void reduce_ranks(
    const ReduceSources& sources, DType dtype, Range elements, void* out, cudaStream_t stream);

}  // namespace tp::cuda

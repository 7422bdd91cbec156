// Kernels with one planted bug each; with `wrong` false the bug is mended and everything is right.
#pragma once

#include <cuda_runtime.h>

namespace emulated_test {

// out[i] = in[i]. With `past_end` the kernel goes one element too far.
void copy_elements(float* out, const float* in, int count, bool past_end, cudaStream_t stream);

// Does the same, with pointers that no launch can see as arguments.
struct CopyPointers {
  float* out;
  const float* in;
};
void copy_by_struct(CopyPointers pointers, int count, cudaStream_t stream);

// Sums 256 elements by shared memory. Wrong: no __syncthreads between writing and reading the
// warps' sums.
void sum_without_barrier(float* out, const float* in, bool wrong, cudaStream_t stream);
// out[i] = in[i ^ 1] in one warp. Wrong: no __syncwarp between writing and reading shared memory.
void swap_without_syncwarp(float* out, const float* in, bool wrong, cudaStream_t stream);
// out[i] = i for 64 threads through shared memory. Wrong: only half of it is written.
void read_uninitialised_shared(float* out, bool wrong, cudaStream_t stream);
// Wrong: half of the block goes to another __syncthreads.
void diverge_at_barrier(float* out, bool wrong, cudaStream_t stream);
// Wrong: a shuffle with the full mask after some lanes have returned.
void shuffle_after_return(float* out, bool wrong, cudaStream_t stream);
// Wrong: a shuffle with the full mask in a branch that only some lanes take.
void shuffle_in_branch(float* out, bool wrong, cudaStream_t stream);
// Writes `floats` elements of dynamic shared memory, launched with room for 64.
void use_dynamic_shared(float* out, int floats, cudaStream_t stream);
// Writes `floats` elements of static shared memory that holds 64.
void use_static_shared(float* out, int floats, cudaStream_t stream);
// Asks for so many bytes of dynamic shared memory, without cudaFuncSetAttribute.
void ask_for_dynamic_shared(float* out, int bytes, cudaStream_t stream);
// out[0] = 1. Wrong: each of 4 blocks writes its own number there.
void race_of_blocks(float* out, bool wrong, cudaStream_t stream);
// Reads float4 from in + offset elements.
void read_float4(float* out, const float* in, int offset, cudaStream_t stream);
// Keeps so many KiB of local variables.
void use_stack(float* out, bool wrong, cudaStream_t stream);

}  // namespace emulated_test

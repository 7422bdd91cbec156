#include "bug_kernels.h"
#include "cuda_language.h"

namespace emulated_test {
namespace {

__global__ void copy_kernel(float* out, const float* in, int count, bool past_end) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (past_end ? i <= count : i < count) {
    out[i] = in[i];
  }
}

__global__ void copy_by_struct_kernel(CopyPointers pointers, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) {
    pointers.out[i] = pointers.in[i];
  }
}

__global__ void sum_kernel(float* out, const float* in, bool wrong) {
  TP_SHARED(float, sums, 8);
  float sum = in[threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
  }
  if (!wrong) {
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    float total = 0;
    for (int warp = 0; warp < 8; ++warp) {
      total += sums[warp];
    }
    out[0] = total;
  }
}

__global__ void swap_kernel(float* out, const float* in, bool wrong) {
  TP_SHARED(float, kept, 32);
  kept[threadIdx.x] = in[threadIdx.x];
  if (!wrong) {
    __syncwarp();
  }
  out[threadIdx.x] = kept[threadIdx.x ^ 1u];
}

__global__ void uninitialised_kernel(float* out, bool wrong) {
  TP_SHARED(float, kept, 64);
  if (!wrong || threadIdx.x < 32) {
    kept[threadIdx.x] = static_cast<float>(threadIdx.x);
  }
  __syncthreads();
  out[threadIdx.x] = kept[threadIdx.x];
}

__global__ void diverge_kernel(float* out, bool wrong) {
  if (wrong && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0f;
}

__global__ void after_return_kernel(float* out, bool wrong) {
  if (wrong && threadIdx.x >= 20) {
    return;
  }
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}

__global__ void in_branch_kernel(float* out, bool wrong) {
  float value = 1.0f;
  if (!wrong || threadIdx.x % 2 == 0) {
    value = __shfl_xor_sync(0xffffffffu, value, 1);
  }
  __syncwarp();
  out[threadIdx.x] = value;
}

__global__ void dynamic_kernel(float* out, int floats) {
  TP_DYNAMIC_SHARED(float, kept);
  for (int i = static_cast<int>(threadIdx.x); i < floats; i += static_cast<int>(blockDim.x)) {
    kept[i] = 1.0f;
  }
  __syncthreads();
  out[threadIdx.x] = kept[threadIdx.x];
}

// Behind a pointer, so that no compiler knows how long the array is.
__device__ void fill(float* array, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    array[i] = 1.0f;
  }
}

__global__ void static_kernel(float* out, int floats) {
  TP_SHARED(float, kept, 64);
  fill(kept, floats);
  __syncthreads();
  out[threadIdx.x] = kept[threadIdx.x];
}

__global__ void block_race_kernel(float* out, bool wrong) {
  if (threadIdx.x == 0 && (wrong || blockIdx.x == 0)) {
    out[0] = wrong ? static_cast<float>(blockIdx.x) : 1.0f;
  }
}

__global__ void float4_kernel(float* out, const float* in, int offset) {
  const float4 values = *reinterpret_cast<const float4*>(in + offset + 4 * threadIdx.x);
  out[threadIdx.x] = values.x;
}

// Its frame must not be merged into that of the kernel.
__attribute__((noinline)) __device__ float big_frame(float value) {
  volatile float frame[100000];
  for (int i = 0; i < 100000; i += 100) {
    frame[i] = value;
  }
  return frame[300];
}

__global__ void stack_kernel(float* out, bool wrong) {
  out[threadIdx.x] = wrong ? big_frame(1.0f) : 1.0f;
}

}  // namespace

void copy_elements(float* out, const float* in, int count, bool past_end, cudaStream_t stream) {
  TP_LAUNCH(copy_kernel, static_cast<unsigned>(count / 128 + 1), 128, 0, stream, out, in, count,
            past_end);
}

void copy_by_struct(CopyPointers pointers, int count, cudaStream_t stream) {
  TP_LAUNCH(copy_by_struct_kernel, 1, 128, 0, stream, pointers, count);
}

void sum_without_barrier(float* out, const float* in, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(sum_kernel, 1, 256, 0, stream, out, in, wrong);
}

void swap_without_syncwarp(float* out, const float* in, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(swap_kernel, 1, 32, 0, stream, out, in, wrong);
}

void read_uninitialised_shared(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(uninitialised_kernel, 1, 64, 0, stream, out, wrong);
}

void diverge_at_barrier(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(diverge_kernel, 1, 64, 0, stream, out, wrong);
}

void shuffle_after_return(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(after_return_kernel, 1, 32, 0, stream, out, wrong);
}

void shuffle_in_branch(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(in_branch_kernel, 1, 32, 0, stream, out, wrong);
}

void use_dynamic_shared(float* out, int floats, cudaStream_t stream) {
  TP_LAUNCH(dynamic_kernel, 1, 64, 64 * sizeof(float), stream, out, floats);
}

void use_static_shared(float* out, int floats, cudaStream_t stream) {
  TP_LAUNCH(static_kernel, 1, 64, 0, stream, out, floats);
}

void ask_for_dynamic_shared(float* out, int bytes, cudaStream_t stream) {
  TP_LAUNCH(dynamic_kernel, 1, 64, static_cast<std::size_t>(bytes), stream, out, 64);
}

void race_of_blocks(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(block_race_kernel, 4, 64, 0, stream, out, wrong);
}

void read_float4(float* out, const float* in, int offset, cudaStream_t stream) {
  TP_LAUNCH(float4_kernel, 1, 8, 0, stream, out, in, offset);
}

void use_stack(float* out, bool wrong, cudaStream_t stream) {
  TP_LAUNCH(stack_kernel, 1, 32, 0, stream, out, wrong);
}

}  // namespace emulated_test

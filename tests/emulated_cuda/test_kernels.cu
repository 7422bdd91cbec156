#include "cuda_language.h"
#include "test_kernels.h"

namespace emulated_test {
namespace {

__global__ void add_one_kernel(float* out, const float* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    out[i] = in[i] + 1.0f;
  }
}

__global__ void reverse_blocks_kernel(int* out, const int* in) {
  TP_SHARED(int, kept, 256);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  kept[threadIdx.x] = in[i];
  __syncthreads();
  out[i] = kept[blockDim.x - 1 - threadIdx.x];
}

template <int kUnused>
__global__ void block_sums_kernel(float* out, const float* in) {
  TP_DYNAMIC_SHARED(float, warp_sums);
  const unsigned lane = threadIdx.x % 32;
  float sum = in[blockIdx.x * blockDim.x + threadIdx.x];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (lane == 0) {
    warp_sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, static_cast<unsigned>(distance));
    }
    if (lane == 0) {
      out[blockIdx.x] = sum;
    }
  }
}

__global__ void warp_operations_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned all = 0xffffffffu;
  out[lane] = __shfl_sync(all, lane * 10, 3);
  out[32 + lane] = __shfl_sync(all, lane, 1, 8);
  out[64 + lane] = __shfl_up_sync(all, lane, 1);
  out[96 + lane] = __shfl_down_sync(all, lane, 2, 4);
  out[128 + lane] = __shfl_xor_sync(all, lane, 5);
  out[160 + lane] = static_cast<int>(__ballot_sync(all, lane % 3 == 0));
  out[192 + lane] = __any_sync(all, lane == 31) * 2 + __all_sync(all, lane < 31);
  if (lane < 16) {  // half a warp by itself
    out[224 + lane] = __shfl_xor_sync(0x0000ffffu, lane, 1);
  } else {
    out[224 + lane] = __shfl_xor_sync(0xffff0000u, lane, 2);
  }
}

__global__ void count_threads_kernel(int* counter, int* largest) {
  atomicAdd(counter, 1);
  atomicMax(largest, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

__global__ void linear_numbers_kernel(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned number = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[number] = static_cast<int>(number);
}

__global__ void early_return_kernel(int* out, int staying) {
  TP_SHARED(int, total, 1);
  const int i = static_cast<int>(threadIdx.x);
  if (i >= staying) {
    return;
  }
  if (i == 0) {
    total[0] = staying;
  }
  __syncthreads();
  out[i] = total[0];
}

__attribute__((noinline)) __device__ void fill_local(int* values, int first) {
  for (int i = 0; i < 8; ++i) {
    values[i] = first + i;
  }
}

__global__ void local_arrays_kernel(int* out) {
  int values[8];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  fill_local(values, i);
  if (threadIdx.x % 2 == 0) {
    __syncwarp(0x55555555u);
  }
  int sum = 0;
  for (int k = 0; k < 8; ++k) {
    sum += values[k];
  }
  out[i] = sum;
}

__global__ void dynamic_shared_kernel(float* out, int count) {
  TP_DYNAMIC_SHARED(float, memory);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    memory[i] = static_cast<float>(i);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = memory[count - 1];
  }
}

}  // namespace

void add_one(float* out, const float* in, int count, cudaStream_t stream) {
  TP_LAUNCH(add_one_kernel, static_cast<unsigned>((count + 127) / 128), 128, 0, stream, out, in,
            count);
}

void reverse_blocks(int* out, const int* in, int blocks, int threads, cudaStream_t stream) {
  TP_LAUNCH(reverse_blocks_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
            stream, out, in);
}

void block_sums(float* out, const float* in, int blocks, int threads, cudaStream_t stream) {
  TP_LAUNCH((block_sums_kernel<1>), static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
            32 * sizeof(float), stream, out, in);
}

void warp_operations(int* out, cudaStream_t stream) {
  TP_LAUNCH(warp_operations_kernel, 1, 32, 0, stream, out);
}

void count_threads(int* counter, int* largest, int blocks, int threads, cudaStream_t stream) {
  TP_LAUNCH(count_threads_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
            stream, counter, largest);
}

void linear_numbers(int* out, dim3 grid, dim3 block, cudaStream_t stream) {
  TP_LAUNCH(linear_numbers_kernel, grid, block, 0, stream, out);
}

void early_return(int* out, int staying, int threads, cudaStream_t stream) {
  TP_LAUNCH(early_return_kernel, 1, static_cast<unsigned>(threads), 0, stream, out, staying);
}

void local_arrays(int* out, int blocks, int threads, cudaStream_t stream) {
  TP_LAUNCH(local_arrays_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
            stream, out);
}

void dynamic_shared(float* out, std::size_t bytes, bool allow, cudaStream_t stream) {
  if (allow) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(dynamic_shared_kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)));
  }
  TP_LAUNCH(dynamic_shared_kernel, 1, 64, bytes, stream, out,
            static_cast<int>(bytes / sizeof(float)));
}

}  // namespace emulated_test

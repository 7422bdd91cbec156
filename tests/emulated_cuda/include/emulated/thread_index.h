// threadIdx, blockIdx, blockDim, gridDim: who the running CUDA thread is.
#pragma once

#include <cuda_runtime.h>

// A block's threads take turns on one OS thread, and each finds its own index here when its turn
// begins.
#define EMULATED_INDEX extern constinit thread_local __attribute__((tls_model("initial-exec")))
EMULATED_INDEX uint3 threadIdx;
EMULATED_INDEX uint3 blockIdx;
EMULATED_INDEX dim3 blockDim;
EMULATED_INDEX dim3 gridDim;
#undef EMULATED_INDEX

#if defined(__SANITIZE_THREAD__)
#define EMULATED_INDEX_BY_CALL
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATED_INDEX_BY_CALL
#endif
#endif
#if defined(EMULATED_INDEX_BY_CALL)
// ThreadSanitizer takes thread-local memory for the OS thread's own, but the CUDA threads read it in
// contexts of their own. It does not see what the library reads.
namespace emulated_cuda {
uint3 thread_index();
uint3 block_index();
dim3 block_dimensions();
dim3 grid_dimensions();
}  // namespace emulated_cuda
#define threadIdx (::emulated_cuda::thread_index())
#define blockIdx (::emulated_cuda::block_index())
#define blockDim (::emulated_cuda::block_dimensions())
#define gridDim (::emulated_cuda::grid_dimensions())
#endif

inline constexpr int warpSize = 32;

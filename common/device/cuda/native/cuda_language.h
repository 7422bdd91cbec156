// The CUDA language as the kernels use it: here nvcc's own. [introduced in chapter 01]
//
// tests/emulated_cuda has a header of the same name that provides all of this to a C++ compiler;
// the include path decides which of the two a kernel sees.
#pragma once

#include <cstddef>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "common/device/cuda/check.h"

namespace tp::cuda {

template <class... Parameters, class... Arguments>
void launch(const char* name,
            void (*kernel)(Parameters...),
            dim3 grid,
            dim3 block,
            std::size_t shared_bytes,
            cudaStream_t stream,
            Arguments... arguments) {
  kernel<<<grid, block, shared_bytes, stream>>>(arguments...);
  check_launch(cudaGetLastError(), name);
}

}  // namespace tp::cuda

// TP_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...): a macro so that an error can
// name the kernel. A kernel template stands in parentheses: TP_LAUNCH((add_kernel<4>), ...).
#define TP_LAUNCH(kernel, ...) ::tp::cuda::launch(#kernel, kernel, __VA_ARGS__)

// An array in the memory that the threads of a block share.
#define TP_SHARED(T, name, count) __shared__ T name[count]

// The shared memory whose size the launch gives, aligned to 16 bytes; once per kernel.
#define TP_DYNAMIC_SHARED(T, name)                                          \
  extern __shared__ __align__(16) unsigned char tp_dynamic_shared_memory[]; \
  T* const name = reinterpret_cast<T*>(tp_dynamic_shared_memory)

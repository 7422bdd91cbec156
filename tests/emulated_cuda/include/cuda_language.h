// The CUDA language for g++ and clang++: with this header first on the include path, a .cu file
// compiles as C++ and its kernels run on the CPU, where a debugger can step through them. The
// header of the same name under common/device/cuda/native is the one nvcc sees.
//
// Supported are exactly the parts of the language that the project's kernels use; anything else
// does not compile.
#pragma once

#if defined(__CUDACC__)
#error "This header is for host compilers; nvcc takes common/device/cuda/native/cuda_language.h"
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// The toolkit's headers already define some of these for host compilers. There, __shared__ would
// silently become an ordinary local variable, so here it does not compile: TP_SHARED is the way.
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __shared__ use_TP_SHARED_instead_of___shared__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

#include "emulated/atomic_functions.h"
#include "emulated/launch.h"
#include "emulated/math_functions.h"
#include "emulated/shared_memory.h"
#include "emulated/thread_index.h"
#include "emulated/warp_functions.h"

// TP_LAUNCH: what kernel<<<grid, block, shared_bytes, stream>>>(arguments) is for nvcc.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "emulated/call_site.h"

namespace tp::cuda {
// See common/device/cuda/check.h.
void check_launch(cudaError_t result, std::string_view kernel);
}  // namespace tp::cuda

namespace emulated_cuda {

// Everything about a launch but the code that each thread runs.
struct LaunchSettings {
  const char* kernel_name;
  CallSite site;
  const void* kernel;  // its address, the key of cudaFuncSetAttribute
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

// An argument of the kernel that is a pointer: checked at the launch, null if it is none.
using PointerArgument = const void*;

// Puts a kernel into a stream. Its errors are CUDA's and found by cudaGetLastError; arguments that
// point to what the device cannot reach end in a report.
void launch(const LaunchSettings& settings,
            std::initializer_list<PointerArgument> arguments,
            std::function<void()> thread_body);

template <class T>
PointerArgument pointer_argument(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return argument;
  } else {
    return nullptr;
  }
}

template <class... Parameters, class... Arguments>
void launch_kernel(const char* name,
                   CallSite site,
                   void (*kernel)(Parameters...),
                   dim3 grid,
                   dim3 block,
                   std::size_t shared_bytes,
                   cudaStream_t stream,
                   const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "a launch copies the arguments byte by byte");
  launch({name, site, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream},
         {pointer_argument(static_cast<Parameters>(arguments))...},
         [kernel, ... values = static_cast<Parameters>(arguments)] { kernel(values...); });
}

}  // namespace emulated_cuda

#define TP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
  (::emulated_cuda::launch_kernel(#kernel, ::emulated_cuda::CallSite::here(), kernel, grid, block, \
                                  shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__),                \
   ::tp::cuda::check_launch(cudaGetLastError(), #kernel))

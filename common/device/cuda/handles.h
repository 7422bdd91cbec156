// What CUDA and cuBLAS hand out, each owned by one object that gives it back. [chapter 01]
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

namespace tp::cuda {

// Calls a function of CUDA's C interface on destruction; its status is of no use there.
template <auto kDestroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};

using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>>;
using GraphExec =
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>>;
using Blas = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Destroy<cublasDestroy>>;
// Memory of the host that the GPU can copy from and to while the host goes on.
using PinnedBytes = std::unique_ptr<std::byte, Destroy<cudaFreeHost>>;

// A stream that waits for no other one.
Stream make_stream();
// For ordering streams, not for measuring time.
Event make_event();
PinnedBytes allocate_pinned(std::size_t bytes);

}  // namespace tp::cuda

#include "common/device/cuda/check.h"

#include <string>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp::cuda {

namespace {

ErrorKind kind_of(cudaError_t result) {
  switch (result) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return ErrorKind::device;
    case cudaErrorMemoryAllocation:
      return ErrorKind::input;
    default:
      return ErrorKind::rank;
  }
}

const char* remedy_for(cudaError_t result) {
  switch (result) {
    case cudaErrorNoDevice:
      return "; run with --device cpu, or look at what nvidia-smi and CUDA_VISIBLE_DEVICES say";
    case cudaErrorInsufficientDriver:
      return "; the driver is older than the toolkit of this build: update it, or use --device cpu";
    case cudaErrorMemoryAllocation:
      return "; use more ranks (--tp), a smaller --dtype or a lower --gpu-memory-utilization";
    case cudaErrorNoKernelImageForDevice:
      return "; build again with this GPU's architecture in CMAKE_CUDA_ARCHITECTURES";
    default:
      return "";
  }
}

}  // namespace

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  throw Error(kind_of(result), fmt::format("{}: {} ({}){}", what, cudaGetErrorName(result),
                                           cudaGetErrorString(result), remedy_for(result)));
}

void check_launch(cudaError_t result, std::string_view kernel) {
  if (result == cudaSuccess) return;
  check(result, fmt::format("launch of {}", kernel));
}

void require(bool holds, std::string_view what) {
  if (!holds) throw input_error(std::string(what));
}

}  // namespace tp::cuda

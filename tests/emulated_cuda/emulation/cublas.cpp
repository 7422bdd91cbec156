// The part of cuBLAS that the project uses: handles, and cublasGemmEx with checks.
//
// Sizes, strides and types are refused with the status codes of the real one. Beyond those, each
// matrix must lie inside of its allocation as a whole: a swapped leading dimension that the real
// one would happily read past the end is reported.
#include <algorithm>
#include <set>

#include <cublas_v2.h>

#include "capture.h"
#include "device.h"
#include "execution.h"
#include "gemm.h"
#include "memory.h"
#include "report.h"
#include "stream.h"

struct cublasContext {
  int device = 0;
  emulated_cuda::Stream* stream = nullptr;
};

namespace emulated_cuda {
namespace {

std::set<cublasHandle_t>& living_handles() {
  static auto* const result = new std::set<cublasHandle_t>;
  return *result;
}

bool is_living(cublasHandle_t handle) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  return living_handles().count(handle) > 0;
}

struct Product {
  Matrix a, b, c;
  float alpha;
  float beta;
};

// Strides may be wider than the matrix, to take columns of a wider one; they must not be narrower.
bool strides_fit(const Product& product) {
  const auto fits = [](const Matrix& matrix) {
    return matrix.stride >= std::max(1LL, matrix.rows);
  };
  return fits(product.a) && fits(product.b) && fits(product.c);
}

bool types_are_supported(const Product& product) {
  const cudaDataType type = product.a.type;
  return product.b.type == type && product.c.type == CUDA_R_32F &&
         (type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F);
}

void note_accesses(const Product& product) {
  const auto each_column = [](const Matrix& matrix, auto note) {
    for (long long column = 0; column < matrix.columns; ++column) {
      const auto offset = static_cast<std::size_t>(column * matrix.stride) * matrix.element_bytes();
      note(static_cast<char*>(const_cast<void*>(matrix.data)) + offset,
           static_cast<std::size_t>(matrix.rows) * matrix.element_bytes());
    }
  };
  each_column(product.a, note_read);
  each_column(product.b, note_read);
  each_column(product.c, note_write);
}

void require_operands(const Product& product, int device, Execution* execution) {
  const Quiet quiet;
  for (const auto& [matrix, name] :
       {std::pair(product.a, "A"), std::pair(product.b, "B"), std::pair(product.c, "C")}) {
    if (matrix.span_bytes() == 0) {
      continue;
    }
    const std::string argument = text("%s (%lld rows, %lld columns, leading dimension %lld)", name,
                                      matrix.rows, matrix.columns, matrix.stride);
    Allocation& allocation = require_device_memory(
        matrix.data, {"cublasGemmEx", argument.c_str(), matrix.span_bytes(), device});
    if (execution != nullptr) {
      execution->open(allocation);
    }
  }
}

void run_product(const Product& product, Stream& stream) {
  Execution execution(stream.device, "cublasGemmEx", {});
  require_operands(product, stream.device, &execution);
  note_accesses(product);
  const Quiet quiet;
  gemm(product.a, product.b, product.alpha, product.beta, product.c,
       static_cast<float*>(const_cast<void*>(product.c.data)));
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (refuse_in_capturing_thread() != cudaSuccess) {  // the real one allocates memory
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  const Quiet quiet;
  *handle = new cublasContext{current_device(), nullptr};
  const std::lock_guard lock(stream_mutex());
  living_handles().insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (!is_living(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  living_handles().erase(handle);
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t /*handle*/, int* version) {
  *version = CUDART_VERSION * 10;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream_handle) {
  if (!is_living(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  Stream& stream = stream_of(stream_handle, "cublasSetStream");
  if (stream.device != handle->device) {
    report("stream of another device",
           text("cublasSetStream: the handle was created on device %d, the stream on device %d",
                handle->device, stream.device));
  }
  handle->stream = &stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  if (!is_living(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (bytes > 0) {
    require_device_memory(workspace, {"cublasSetWorkspace", "workspace", bytes, handle->device});
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (!is_living(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  // No TF32: the project promises f32 products.
  return mode == CUBLAS_DEFAULT_MATH || mode == CUBLAS_PEDANTIC_MATH ? CUBLAS_STATUS_SUCCESS
                                                                     : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle,
                            cublasOperation_t a_operation,
                            cublasOperation_t b_operation,
                            int m,
                            int n,
                            int k,
                            const void* alpha,
                            const void* a,
                            cudaDataType a_type,
                            int a_stride,
                            const void* b,
                            cudaDataType b_type,
                            int b_stride,
                            const void* beta,
                            void* c,
                            cudaDataType c_type,
                            int c_stride,
                            cublasComputeType_t compute_type,
                            cublasGemmAlgo_t /*algorithm*/) {
  if (!is_living(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  const bool a_transposed = a_operation != CUBLAS_OP_N;
  const bool b_transposed = b_operation != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Product product = {
      {a, a_type, a_transposed, a_transposed ? k : m, a_transposed ? m : k, a_stride},
      {b, b_type, b_transposed, b_transposed ? n : k, b_transposed ? k : n, b_stride},
      {c, c_type, false, m, n, c_stride},
      *static_cast<const float*>(alpha),
      *static_cast<const float*>(beta)};
  if (!strides_fit(product)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!types_are_supported(product) ||
      (compute_type != CUBLAS_COMPUTE_32F && compute_type != CUBLAS_COMPUTE_32F_PEDANTIC)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (m == 0 || n == 0) {
    return CUBLAS_STATUS_SUCCESS;
  }
  Stream& stream = stream_of(handle->stream, "cublasGemmEx");
  require_operands(product, stream.device, nullptr);
  const cudaError_t result = enqueue(
      stream, std::make_unique<Task>("cublasGemmEx",
                                     [product](Stream& where) { run_product(product, where); }));
  return result == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    default:
      return "an internal operation failed";
  }
}

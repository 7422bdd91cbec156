// Bugs in calls of cuBLAS.
#include <cublas_v2.h>

#include "bug.h"

namespace emulated_test {
namespace {

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(cublasGetStatusName(status));
  }
}
using emulated_test::check;

// y [2 tokens, 8 out] = x [2, 24 in] * weight [8, 24]^T, row-major. Wrong: the leading dimension of
// x is taken for 48.
bool swapped_leading_dimension(bool wrong) {
  const TestStream stream;
  const DeviceArray<float> x(stream, Floats(2 * 24, 1.0f));
  const DeviceArray<float> weight(stream, Floats(8 * 24, 1.0f));
  const Zeros y(stream, 2 * 8);
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle));
  check(cublasSetStream(handle, stream));
  const float one = 1;
  const float zero = 0;
  check(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 8, 2, 24, &one, weight.data(), CUDA_R_32F,
                     24, x.data(), CUDA_R_32F, wrong ? 48 : 24, &zero, y.data(), CUDA_R_32F, 8,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  const bool right = y.values() == Floats(2 * 8, 24.0f);
  check(cublasDestroy(handle));
  return right;
}

// The same with the weight's leading dimension: out instead of in features, which is too small to
// be legal.
bool illegal_leading_dimension(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 24 * 24);
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle));
  check(cublasSetStream(handle, stream));
  const float one = 1;
  check(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 8, 2, 24, &one, data.data(), CUDA_R_32F,
                     wrong ? 8 : 24, data.data(), CUDA_R_32F, 24, &one, data.data(), CUDA_R_32F, 8,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  stream.synchronize();
  check(cublasDestroy(handle));
  return true;
}

}  // namespace

std::vector<Bug> gemm_bugs() {
  return {
      {"swapped_leading_dimension", swapped_leading_dimension},
      {"illegal_leading_dimension", illegal_leading_dimension},
  };
}

}  // namespace emulated_test

#include "common/device/cuda/products.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp::cuda {

namespace {

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::rank, fmt::format("{}: {} ({})", what, cublasGetStatusName(status),
                                             cublasGetStatusString(status)));
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

}  // namespace

Products::Products(cudaStream_t stream, TensorView workspace) {
  cublasHandle_t handle = nullptr;
  check_blas(cublasCreate(&handle), "cublasCreate");
  blas_.reset(handle);
  check_blas(cublasSetStream(handle, stream), "cublasSetStream");
  check_blas(
      cublasSetWorkspace(handle, workspace.data, static_cast<std::size_t>(workspace.bytes())),
      "cublasSetWorkspace");
  check_blas(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
}

// cuBLAS thinks in columns: it reads a matrix whose elements go down the columns first. Our rows one
// behind the other are, read that way, the columns of the transposed matrix:
//
//   in memory               cuBLAS reads        leading dimension (from column to column)
//   x      [M, K] by rows   x^T [K, M]          stride of x
//   weight [N, K] by rows   W^T [K, N]          stride of weight
//   y      [M, N] by rows   y^T [N, M]          stride of y
//
// and y = x W^T is the same as y^T = W x^T: the first factor is what cuBLAS reads for the weight,
// transposed back (OP_T); the second is what it reads for x, as it is (OP_N). Nothing is copied.
void Products::multiply(ConstTensorView x, ConstTensorView weight, TensorView y) {
  const std::int64_t m = x.rows(), n = weight.rows(), k = x.row_elements();
  const float one = 1, zero = 0;
  const auto leading = [](ConstTensorView matrix) {  // of one row it means nothing, but is checked
    return static_cast<int>(matrix.rows() > 1 ? matrix.row_stride : matrix.row_elements());
  };
  const cublasStatus_t status =
      cublasGemmEx(blas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(n), static_cast<int>(m),
                   static_cast<int>(k), &one, weight.data, type_of(weight.dtype), leading(weight),
                   x.data, type_of(x.dtype), leading(x), &zero, y.data, CUDA_R_32F, leading(y),
                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(
        ErrorKind::rank,
        fmt::format("cublasGemmEx of x {} and weight {} {}: {}", x.shape.to_string(),
                    name_of(weight.dtype), weight.shape.to_string(), cublasGetStatusName(status)));
}

}  // namespace tp::cuda

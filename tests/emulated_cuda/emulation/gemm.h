// The product of two matrices, as cuBLAS defines it.
#pragma once

#include <cuda_runtime.h>

namespace emulated_cuda {

// A column-major matrix in device memory: element (row, column) is the one of number column *
// stride + row.
struct Matrix {
  const void* data;
  cudaDataType type;
  bool transposed;  // used as its transpose
  long long rows;   // as it is stored
  long long columns;
  long long stride;

  std::size_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  // From the first element to the end of the last.
  std::size_t span_bytes() const {
    return rows == 0 || columns == 0
               ? 0
               : static_cast<std::size_t>((columns - 1) * stride + rows) * element_bytes();
  }
};

// c = alpha op(a) op(b) + beta c, in f32. With beta 0 the old c is not read, as it may be NaN.
void gemm(
    const Matrix& a, const Matrix& b, float alpha, float beta, const Matrix& c, float* result);

}  // namespace emulated_cuda

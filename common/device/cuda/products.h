// Matrix products by cuBLAS. [chapter 01]
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "common/core/tensor.h"
#include "common/device/cuda/handles.h"

namespace tp::cuda {

// The products of one stream. Sums are f32 in an order that cuBLAS chooses by the shape; TF32 stays
// off, so products of f32 are those of f32.
class Products {
 public:
  // `workspace` is for cuBLAS alone. With one of its own it allocates nothing later, which a
  // captured step could not have.
  Products(cudaStream_t stream, TensorView workspace);

  // y = x W^T.
  // Shapes: x [M, K] and weight [N, K] of one dtype, f32, bf16 or f16; y [M, N] f32; none is empty.
  //         Rows may be strided.
  // Errors: tp::Error (rank) that names cuBLAS's status and the sizes.
  void multiply(ConstTensorView x, ConstTensorView weight, TensorView y);

 private:
  Blas blas_;
};

}  // namespace tp::cuda

// Launchers of the RMSNorm kernels. [introduced in chapter 06]
//
// Sums are f32, in an order that depends on nothing but the number of columns: same row, same bits.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/device/cuda/device_rows.h"

namespace tp::cuda {

// y = x / sqrt(mean(x^2) + eps) * weight, row by row. y may be x.
// Shapes: x, y [rows, columns], weight [columns].
// Moves: 8 bytes per element.
void rms_norm(ConstRows x, WeightRows weight, float eps, Rows y, Extent size, cudaStream_t stream);

// The same with the residual: x += delta, then y = norm(x) * weight, in one pass.
// Shapes: x, delta, y [rows, columns]. y may be delta.
// Moves: 16 bytes per element; add and rms_norm one after the other move 20.
void add_rms_norm(Rows x,
                  ConstRows delta,
                  WeightRows weight,
                  float eps,
                  Rows y,
                  Extent size,
                  cudaStream_t stream);

struct HeadRows {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

// The same for each head of a row by itself, in place; weight is one for all heads.
// Shapes: x [rows, heads * head_dim], weight [head_dim].
// Moves: 8 bytes per element.
void rms_norm_heads(Rows x, WeightRows weight, float eps, HeadRows size, cudaStream_t stream);

}  // namespace tp::cuda

// Launchers of the kernels that do one small thing to each element. [introduced in chapter 01]
//
// All of them: nothing happens without rows or columns; the result is visible on `stream`.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/core/dtype.h"
#include "common/device/cuda/device_rows.h"

namespace tp::cuda {

// x += y.
// Moves: 12 bytes per element.
void add(Rows x, ConstRows y, Extent size, cudaStream_t stream);

// x += bias in every row.
// Moves: 8 bytes per element; the bias stays in the caches.
void add_bias(Rows x, WeightRows bias, Extent size, cudaStream_t stream);

// Rounds x to the nearest value of out_dtype (bf16 or f16), ties to even, and packs its rows one
// behind the other: what a matrix product with 16-bit weights reads.
// Shapes: x [rows, columns] -> out [rows, columns], contiguous.
// Moves: 6 bytes per element.
void round_rows(ConstRows x, Extent size, void* out, DType out_dtype, cudaStream_t stream);

// Row i of y = row rows[i] of x, for i < size.rows.
// Moves: 8 bytes per element.
void select_rows(ConstRows x, const std::int32_t* rows, Rows y, Extent size, cudaStream_t stream);

}  // namespace tp::cuda

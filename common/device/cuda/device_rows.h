// How launchers name memory of the GPU. [introduced in chapter 01]
//
// These are what remains of a TensorView once its shape and place are checked: a pointer, and how
// far apart the rows are. All pointers are device pointers, all strides count elements.
#pragma once

#include <cstdint>

#include "common/core/dtype.h"

namespace tp::cuda {

// Rows of f32, the elements of one row side by side.
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;  // from one row to the next
};

// The same, to read only.
struct ConstRows {
  const float* data = nullptr;
  std::int64_t stride = 0;

  ConstRows() = default;
  ConstRows(const float* first, std::int64_t row_stride) : data(first), stride(row_stride) {}
  ConstRows(Rows rows) : data(rows.data), stride(rows.stride) {}
};

// Rows of weights: f32, bf16 or f16. A bias or a norm weight is one row.
struct WeightRows {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;
};

// How many rows, and how many elements in each.
struct Extent {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

}  // namespace tp::cuda

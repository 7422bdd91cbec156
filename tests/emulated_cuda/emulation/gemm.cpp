#include "gemm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace emulated_cuda {
namespace {

// Vectors that every compiler makes of the instructions it has.
constexpr std::size_t kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

float to_float(float value) {
  return value;
}
float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
float to_float(__half value) {
  return __half2float(value);
}

template <class T>
void gather_as(const void* data, long long first, long long step, std::size_t count, float* to) {
  const T* from = static_cast<const T*>(data) + first;
  for (std::size_t i = 0; i < count; ++i, from += step) {
    to[i] = to_float(*from);
  }
}

// All elements of one row or one column, side by side in f32.
void gather(const Matrix& matrix, bool is_column, long long number, std::size_t count, float* to) {
  const long long first = is_column ? number * matrix.stride : number;
  const long long step = is_column ? 1 : matrix.stride;
  switch (matrix.type) {
    case CUDA_R_16BF:
      gather_as<__nv_bfloat16>(matrix.data, first, step, count, to);
      break;
    case CUDA_R_16F:
      gather_as<__half>(matrix.data, first, step, count, to);
      break;
    default:
      gather_as<float>(matrix.data, first, step, count, to);
  }
}

void load(Lanes& to, const float* from) {
  std::memcpy(&to, from, sizeof to);
}

// Dot products of four rows with one, all of them padded with zeros to whole vectors.
std::array<float, 4> four_dots(const float* rows, const float* other, std::size_t padded) {
  std::array<Lanes, 4> sums{};
  for (std::size_t i = 0; i < padded; i += kLanes) {
    Lanes factor;
    load(factor, other + i);
    for (std::size_t row = 0; row < 4; ++row) {
      Lanes values;
      load(values, rows + row * padded + i);
      sums[row] += values * factor;
    }
  }
  std::array<float, 4> result{};
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      result[row] += sums[row][lane];
    }
  }
  return result;
}

}  // namespace

void gemm(
    const Matrix& a, const Matrix& b, float alpha, float beta, const Matrix& c, float* result) {
  const long long m = c.rows;
  const long long n = c.columns;
  const auto k = static_cast<std::size_t>(a.transposed ? a.rows : a.columns);
  const std::size_t padded = (k + kLanes - 1) / kLanes * kLanes;

  std::vector<float> b_columns(static_cast<std::size_t>(n) * padded, 0.0f);
  for (long long j = 0; j < n; ++j) {
    gather(b, !b.transposed, j, k, b_columns.data() + static_cast<std::size_t>(j) * padded);
  }
  std::vector<float> a_rows(4 * padded, 0.0f);
  for (long long i = 0; i < m; i += 4) {
    const long long rows = std::min<long long>(4, m - i);
    for (long long row = 0; row < rows; ++row) {
      gather(a, a.transposed, i + row, k, a_rows.data() + static_cast<std::size_t>(row) * padded);
    }
    for (long long j = 0; j < n; ++j) {
      const std::array<float, 4> dots =
          four_dots(a_rows.data(), b_columns.data() + static_cast<std::size_t>(j) * padded, padded);
      for (long long row = 0; row < rows; ++row) {
        float& target = result[j * c.stride + i + row];
        target =
            alpha * dots[static_cast<std::size_t>(row)] + (beta == 0.0f ? 0.0f : beta * target);
      }
    }
  }
}

}  // namespace emulated_cuda

// Small host matrices for calculations by hand, and the inputs of the chapters.
// [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace tp {

// A row-major matrix of floats with plain element access.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(std::int64_t num_rows, std::int64_t num_cols);
  Matrix(std::int64_t num_rows, std::int64_t num_cols, std::vector<float> elements);

  float& operator()(std::int64_t row, std::int64_t col) {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  float operator()(std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  ConstTensorView view() const { return view_of(values.data(), {rows, cols}); }
  TensorView view() { return view_of(values.data(), {rows, cols}); }

  Matrix rows_in(Range range) const;  // copies
  Matrix cols_in(Range range) const;
};

// X W for W as the articles write it, [in, out].
Matrix multiply(const Matrix& x, const Matrix& w);
Matrix transpose(const Matrix& m);
Matrix add(const Matrix& a, const Matrix& b);
// y + b for each row of y; b has one row.
Matrix add_row(const Matrix& y, const Matrix& b);
Matrix scale(const Matrix& m, float factor);
// The magnitudes of the elements.
Matrix absolute(const Matrix& m);
Matrix concat_columns(const std::vector<Matrix>& parts);
Matrix to_matrix(ConstTensorView tensor);
// The values as they are stored in the dtype.
Tensor to_tensor(const Matrix& m, DType dtype);

// Values that depend only on (seed, row, column), so that a shard can be checked against the whole.
// Uniform in [-1, 1).
Matrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed);
// Integers in [-4, 4]: sums of them are exact in f32 in any order, so any difference is a layout
// error.
Matrix random_integers(std::int64_t rows, std::int64_t cols, std::uint64_t seed);

// "[11, 14 | 17, 20]": the values of a one-row matrix, a bar before each column in `bars`.
std::string format_row(const Matrix& m, const std::vector<std::int64_t>& bars = {});

}  // namespace tp

#include "common/core/matrix.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/random.h"

namespace tp {

Matrix::Matrix(std::int64_t num_rows, std::int64_t num_cols)
    : Matrix(
          num_rows, num_cols, std::vector<float>(static_cast<std::size_t>(num_rows * num_cols))) {}

Matrix::Matrix(std::int64_t num_rows, std::int64_t num_cols, std::vector<float> elements)
    : rows(num_rows), cols(num_cols), values(std::move(elements)) {
  check_equal("matrix", "rows * cols", rows * cols, "number of values",
              static_cast<std::int64_t>(values.size()));
}

Matrix Matrix::rows_in(Range range) const {
  return to_matrix(view().rows_in(range));
}

Matrix Matrix::cols_in(Range range) const {
  return to_matrix(view().columns_in(range));
}

Matrix multiply(const Matrix& x, const Matrix& w) {
  check_equal("multiply", "columns of x", x.cols, "rows of w", w.rows);
  Matrix y(x.rows, w.cols);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < w.cols; ++j)
      for (std::int64_t k = 0; k < x.cols; ++k) y(i, j) += x(i, k) * w(k, j);
  return y;
}

Matrix transpose(const Matrix& m) {
  Matrix t(m.cols, m.rows);
  for (std::int64_t i = 0; i < m.rows; ++i)
    for (std::int64_t j = 0; j < m.cols; ++j) t(j, i) = m(i, j);
  return t;
}

Matrix add(const Matrix& a, const Matrix& b) {
  check_equal("add", "left", a.view().shape, "right", b.view().shape);
  Matrix sum = a;
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
  return sum;
}

Matrix add_row(const Matrix& y, const Matrix& b) {
  check_equal("add_row", "columns of y", y.cols, "columns of b", b.cols);
  Matrix sum = y;
  for (std::int64_t i = 0; i < y.rows; ++i)
    for (std::int64_t j = 0; j < y.cols; ++j) sum(i, j) += b(0, j);
  return sum;
}

Matrix scale(const Matrix& m, float factor) {
  Matrix product = m;
  for (float& value : product.values) value *= factor;
  return product;
}

Matrix absolute(const Matrix& m) {
  Matrix magnitudes = m;
  for (float& value : magnitudes.values) value = std::abs(value);
  return magnitudes;
}

Matrix concat_columns(const std::vector<Matrix>& parts) {
  std::int64_t cols = 0;
  for (const Matrix& part : parts) cols += part.cols;
  Matrix whole(parts.at(0).rows, cols);
  std::int64_t begin = 0;
  for (const Matrix& part : parts) {
    copy_host(part.view(), whole.view().columns_in({begin, begin + part.cols}));
    begin += part.cols;
  }
  return whole;
}

Matrix to_matrix(ConstTensorView tensor) {
  Matrix m(tensor.rows(), tensor.row_elements());
  tensor.shape = {m.rows, m.cols};
  copy_host(tensor, m.view());
  return m;
}

Tensor to_tensor(const Matrix& m, DType dtype) {
  Tensor tensor = Tensor::on_host({m.rows, m.cols}, dtype);
  copy_host(m.view(), tensor);
  return tensor;
}

Matrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < m.values.size(); ++i) m.values[i] = uniform(seed, i) * 2 - 1;
  return m;
}

Matrix random_integers(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < m.values.size(); ++i)
    m.values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 9) - 4);
  return m;
}

std::string format_row(const Matrix& m, const std::vector<std::int64_t>& bars) {
  std::string text = "[";
  for (std::int64_t j = 0; j < m.cols; ++j) {
    if (j > 0) text += std::find(bars.begin(), bars.end(), j) != bars.end() ? " | " : ", ";
    text += fmt::format("{:.6g}", m(0, j));
  }
  return text + "]";
}

}  // namespace tp

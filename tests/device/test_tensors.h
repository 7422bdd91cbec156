// Tensors for tests: with guarded surroundings, and compared bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "common/core/matrix.h"
#include "common/core/tensor.h"

namespace tp {

// A matrix inside a larger one, so that its rows are strided and its surroundings can be watched.
class Framed {
 public:
  static constexpr float kGuard = -12345.0f;

  // The values of m, in a frame of guard values.
  Framed(const Matrix& m, DType dtype) : inner_{kFrame, kFrame + m.cols}, rows_(m.rows) {
    Matrix framed(m.rows + 2 * kFrame, m.cols + 2 * kFrame);
    for (float& value : framed.values) value = kGuard;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c) framed(r + kFrame, c + kFrame) = m(r, c);
    memory_ = to_tensor(framed, dtype);
  }
  // A framed f32 matrix that has yet to be written.
  Framed(std::int64_t rows, std::int64_t cols) : Framed(Matrix(rows, cols), DType::f32) {}

  TensorView view() { return memory_.view().rows_in({kFrame, kFrame + rows_}).columns_in(inner_); }

  // Whether no value of the frame was overwritten. Only for f32.
  bool intact() const {
    for (std::int64_t r = 0; r < memory_.shape()[0]; ++r)
      for (std::int64_t c = 0; c < memory_.shape()[1]; ++c) {
        const bool inside = Range{kFrame, kFrame + rows_}.contains(r) && inner_.contains(c);
        if (!inside && memory_.row<float>(r)[c] != kGuard) return false;
      }
    return true;
  }

 private:
  static constexpr std::int64_t kFrame = 3;
  Range inner_;
  std::int64_t rows_;
  Tensor memory_;
};

// Whether two tensors of one dtype hold the same bits; unlike ==, this tells -0 from 0.
inline bool same_bits(ConstTensorView a, ConstTensorView b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const auto element_bytes = static_cast<std::int64_t>(size_of(a.dtype));
  for (std::int64_t r = 0; r < a.rows(); ++r)
    if (std::memcmp(a.data + r * a.row_stride * element_bytes,
                    b.data + r * b.row_stride * element_bytes,
                    static_cast<std::size_t>(a.row_elements() * element_bytes)) != 0)
      return false;
  return true;
}

}  // namespace tp

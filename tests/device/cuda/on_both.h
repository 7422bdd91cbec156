// The same tensors on a GPU and on the CPU, for tests that compare the two devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/compare.h"
#include "common/core/matrix.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/device.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

namespace tp {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr double kEps = 0x1p-23;  // of f32
inline constexpr DType kStorage[] = {DType::f32, DType::bf16, DType::f16};

// Largest relative error of rounding to a dtype.
inline double rounding_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : kEps / 2;
}

// A matrix of one value.
inline Matrix filled(std::int64_t rows, std::int64_t cols, float value) {
  Matrix m(rows, cols);
  std::fill(m.values.begin(), m.values.end(), value);
  return m;
}

// The values as the dtype has them, and back.
inline Matrix rounded(const Matrix& m, DType dtype) {
  const Tensor stored = to_tensor(m, dtype);
  Matrix result(m.rows, m.cols);
  copy_host(stored, result.view());
  return result;
}

inline double largest_magnitude(ConstTensorView x) {
  Tensor wide = Tensor::on_host({x.rows(), x.row_elements()});
  x.shape = wide.shape();
  copy_host(x, wide);
  double largest = 0;
  for (std::int64_t r = 0; r < wide.shape()[0]; ++r)
    for (std::int64_t c = 0; c < wide.shape()[1]; ++c)
      largest = std::max(largest, std::abs(static_cast<double>(wide.row<float>(r)[c])));
  return largest;
}

struct Devices {
  std::unique_ptr<Device> cpu = make_cpu_device();
  std::unique_ptr<cuda::CudaDevice> gpu = cuda::make_cuda_device({});
};

// One pair for all tests that do not ask what a new device is like.
inline Devices& devices() {
  // Never destroyed: at the end of the process the runtime may be gone before it.
  static Devices& both = *new Devices;
  return both;
}

// How the rows of a matrix lie in memory.
enum class Layout {
  packed,   // one behind the other
  columns,  // columns of a larger matrix, at addresses for wide accesses
  odd,      // the same, at addresses for scalar accesses only
};
inline constexpr Layout kLayouts[] = {Layout::packed, Layout::columns, Layout::odd};

// A matrix on both devices. What surrounds it must stay as it is.
class OnBoth {
 public:
  explicit OnBoth(const Matrix& m, DType dtype = DType::f32, Layout layout = Layout::packed)
      : before_(layout == Layout::columns ? 8
                : layout == Layout::odd   ? 3
                                          : 0),
        rows_(m.rows),
        cols_(m.cols) {
    const std::int64_t frame = layout == Layout::packed ? 0 : 1;
    const std::int64_t width = layout == Layout::packed    ? m.cols
                               : layout == Layout::columns ? (m.cols + 7) / 8 * 8 + 16
                                                           : m.cols / 2 * 2 + 7;
    Matrix framed = filled(m.rows + 2 * frame, width, -1234.0f);
    copy_host(m.view(), framed.view().rows_in({frame, frame + m.rows}).columns_in(inner()));
    first_row_ = frame;
    cpu_ = to_tensor(framed, dtype);
    gpu_ = devices().gpu->write(cpu_, "test");
  }
  // A matrix that has yet to be written.
  OnBoth(std::int64_t rows, std::int64_t cols, Layout layout = Layout::packed)
      : OnBoth(filled(rows, cols, kNaN), DType::f32, layout) {}

  TensorView cpu() { return window(cpu_); }
  TensorView gpu() { return window(gpu_); }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

  // A matrix that the GPU has in a dtype, and the CPU in f32 with the same values.
  static OnBoth wide_on_cpu(const Matrix& m, DType dtype) {
    OnBoth both(rounded(m, dtype));
    both.gpu_ = devices().gpu->upload(both.cpu_, dtype, "test");
    return both;
  }
  // Rounds what the CPU has to the GPU's dtype.
  void round_cpu() {
    const Tensor stored = to_tensor(to_matrix(cpu_), gpu_.dtype());
    copy_host(stored, cpu_);
  }
  // Gives the GPU the numbers of the CPU.
  void copy_to_gpu() { devices().gpu->write(cpu_, gpu_); }

  // Compares the whole of both memories.
  Comparison difference(double bound) const {
    const Tensor from_gpu = devices().gpu->download(gpu_);
    Tensor result = Tensor::on_host(cpu_.shape()), reference = Tensor::on_host(cpu_.shape());
    copy_host(from_gpu, result);
    copy_host(cpu_, reference);
    return compare("GPU against CPU", result, reference, {bound, ""});
  }

 private:
  Range inner() const { return {before_, before_ + cols_}; }
  TensorView window(Tensor& memory) {
    return memory.view().rows_in({first_row_, first_row_ + rows_}).columns_in(inner());
  }

  std::int64_t before_, rows_, cols_, first_row_ = 0;
  Tensor cpu_, gpu_;
};

// A vector of weights on both devices.
class VectorOnBoth {
 public:
  VectorOnBoth(const Matrix& m, DType dtype)
      : cpu_(to_tensor(m, dtype)), gpu_(devices().gpu->upload(cpu_, dtype, "test")) {}
  ConstTensorView cpu() const { return flat(cpu_); }
  ConstTensorView gpu() const { return flat(gpu_); }

 private:
  static ConstTensorView flat(const Tensor& tensor) {
    ConstTensorView view = tensor.view();
    view.shape = {view.shape.elements()};
    view.row_stride = 1;
    return view;
  }
  Tensor cpu_, gpu_;
};

}  // namespace tp

// The GPU's tensor has the CPU's values, up to the bound; 0 means each bit but that of a zero's sign.
#define REQUIRE_CLOSE(tensor, limit)                          \
  do {                                                        \
    const tp::Comparison found = (tensor).difference(limit);  \
    INFO(found.place << ", bound " << found.tolerance.bound); \
    REQUIRE(found.passed);                                    \
  } while (false)

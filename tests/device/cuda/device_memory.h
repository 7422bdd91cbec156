// Matrices in device memory for tests, each in an allocation of its own, so that a wrong address is
// found where it happens. They need no Device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "common/core/dtype.h"
#include "common/core/matrix.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/device_rows.h"
#include "tests/catch.h"

namespace tp::cuda {

class TestStream {
 public:
  TestStream() {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// An array in device memory.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const TestStream& stream, const std::vector<T>& values)
      : stream_(stream), count_(values.size()) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(1, bytes())),
          "cudaMalloc");
    check(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync to the device");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    check(cudaMemcpyAsync(result.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync to the host");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return result;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }

  cudaStream_t stream_;
  std::size_t count_;
  T* data_ = nullptr;
};

// The f16 that is nearest to a value, the even one if two are: found among all of them.
inline f16 nearest_f16(float value) {
  static const auto positive = [] {
    std::vector<float> all(0x7c01);
    for (std::size_t bits = 0; bits < all.size(); ++bits)
      all[bits] = to_float(f16{static_cast<std::uint16_t>(bits)});
    all.back() = 65536.0f;  // what is closer to this than to 65504 is infinite
    return all;
  }();
  if (std::isnan(value)) return {0x7fff};
  const float magnitude = std::min(std::abs(value), 65536.0f);
  auto above = static_cast<std::size_t>(
      std::lower_bound(positive.begin(), positive.end(), magnitude) - positive.begin());
  if (above > 0) {
    const double up = static_cast<double>(positive[above]) - static_cast<double>(magnitude);
    const double down = static_cast<double>(magnitude) - static_cast<double>(positive[above - 1]);
    if (down < up || (down == up && above % 2 == 1)) --above;
  }
  return {static_cast<std::uint16_t>(above | (std::signbit(value) ? 0x8000u : 0u))};
}

// A value as a dtype stores it: its bits, and what they are worth.
inline std::uint32_t stored_bits(float value, DType dtype) {
  if (dtype == DType::bf16) return to_bf16(value).bits;
  if (dtype == DType::f16) return nearest_f16(value).bits;
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float stored_value(std::uint32_t bits, DType dtype) {
  if (dtype == DType::bf16) return to_float(bf16{static_cast<std::uint16_t>(bits)});
  if (dtype == DType::f16) return to_float(f16{static_cast<std::uint16_t>(bits)});
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline Matrix rounded(Matrix m, DType dtype) {
  for (float& value : m.values) value = stored_value(stored_bits(value, dtype), dtype);
  return m;
}

// How the rows of a matrix lie in its memory.
enum class Layout {
  packed,   // one behind the other
  strided,  // apart, each at a multiple of 16 bytes as far as the columns allow
  odd,      // apart, and at addresses that only a scalar access can use
};

// A matrix in device memory, with guards before, between and behind its rows.
class DeviceMatrix {
 public:
  DeviceMatrix(const TestStream& stream,
               const Matrix& m,
               DType dtype = DType::f32,
               Layout layout = Layout::packed)
      : rows_(m.rows),
        cols_(m.cols),
        dtype_(dtype),
        before_(layout == Layout::packed    ? 0
                : layout == Layout::strided ? 8
                                            : 1),
        stride_(layout == Layout::packed    ? m.cols
                : layout == Layout::strided ? (m.cols + 7) / 8 * 8 + 8
                                            : m.cols / 2 * 2 + 3),
        memory_(stream, laid_out(m)) {}
  // A matrix that has yet to be written: NaN.
  DeviceMatrix(const TestStream& stream,
               std::int64_t rows,
               std::int64_t cols,
               Layout layout = Layout::packed)
      : DeviceMatrix(stream, filled(rows, cols), DType::f32, layout) {}

  Rows rows() const { return {static_cast<float*>(data()), stride_}; }
  WeightRows weights() const { return {data(), dtype_, stride_}; }
  Extent size() const { return {rows_, cols_}; }
  void* data() const { return memory_.data() + before_ * element_bytes(); }

  // What it holds now. The guards must be as they were.
  Matrix values() const {
    const std::vector<std::byte> bytes = memory_.values();
    Matrix m(rows_, cols_);
    bool intact = true;
    for (std::size_t i = 0; i * element_bytes() < bytes.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &bytes[i * element_bytes()], element_bytes());
      const auto at = static_cast<std::int64_t>(i) - before_;
      if (at >= 0 && at / stride_ < rows_ && at % stride_ < cols_)
        m(at / stride_, at % stride_) = stored_value(bits, dtype_);
      else
        intact = intact && bits == guard();
    }
    REQUIRE(intact);
    return m;
  }

 private:
  static Matrix filled(std::int64_t rows, std::int64_t cols) {
    Matrix m(rows, cols);
    std::fill(m.values.begin(), m.values.end(), std::numeric_limits<float>::quiet_NaN());
    return m;
  }
  std::uint32_t guard() const { return stored_bits(-12345.0f, dtype_); }
  std::size_t element_bytes() const { return size_of(dtype_); }
  std::vector<std::byte> laid_out(const Matrix& m) const {
    const auto elements = static_cast<std::size_t>(before_ + rows_ * stride_);
    std::vector<std::byte> bytes(elements * element_bytes());
    for (std::size_t i = 0; i < elements; ++i) {
      const auto at = static_cast<std::int64_t>(i) - before_;
      const bool inside = at >= 0 && at / stride_ < rows_ && at % stride_ < cols_;
      const std::uint32_t bits =
          inside ? stored_bits(m(at / stride_, at % stride_), dtype_) : guard();
      std::memcpy(&bytes[i * element_bytes()], &bits, element_bytes());
    }
    return bytes;
  }

  std::int64_t rows_, cols_;
  DType dtype_;
  std::int64_t before_, stride_;
  DeviceArray<std::byte> memory_;
};

}  // namespace tp::cuda

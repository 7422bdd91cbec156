// cublasGemmEx against plain loops, and what it refuses.
#include <algorithm>
#include <limits>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

class Handle {
 public:
  explicit Handle(const TestStream& stream) {
    REQUIRE(cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetStream(handle_, stream) == CUBLAS_STATUS_SUCCESS);
  }
  ~Handle() { cublasDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

float to_float(float value) {
  return value;
}
float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
float to_float(__half value) {
  return __half2float(value);
}
void from_float(float value, float& to) {
  to = value;
}
void from_float(float value, __nv_bfloat16& to) {
  to = __float2bfloat16(value);
}
void from_float(float value, __half& to) {
  to = __float2half(value);
}

// Small numbers, exact in every type, so that the sums are exact too.
template <class T>
std::vector<T> some_numbers(std::size_t count, int seed) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    from_float(static_cast<float>((static_cast<int>(i) * 7 + seed) % 11 - 5), result[i]);
  }
  return result;
}

// One product with these transpositions, strides wider than the matrices by `pad`.
template <class T>
void check_product(cudaDataType type,
                   bool a_transposed,
                   bool b_transposed,
                   int m,
                   int n,
                   int k,
                   int pad,
                   float beta) {
  const TestStream stream;
  const Handle handle(stream);
  const int a_stride = std::max(1, a_transposed ? k : m) + pad;
  const int b_stride = std::max(1, b_transposed ? n : k) + pad;
  const int c_stride = m + pad;
  const auto a = some_numbers<T>(static_cast<std::size_t>(a_stride * (a_transposed ? m : k)), 1);
  const auto b = some_numbers<T>(static_cast<std::size_t>(b_stride * (b_transposed ? k : n)), 3);
  auto c = some_numbers<float>(static_cast<std::size_t>(c_stride * n), 5);
  if (beta == 0.0f) {
    std::fill(c.begin(), c.end(), std::numeric_limits<float>::quiet_NaN());
  }
  const DeviceArray<T> a_device(stream, a);
  const DeviceArray<T> b_device(stream, b);
  const DeviceArray<float> c_device(stream, c);
  const float alpha = 2.0f;
  REQUIRE(cublasGemmEx(handle, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                       b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, a_device.data(),
                       type, a_stride, b_device.data(), type, b_stride, &beta, c_device.data(),
                       CUDA_R_32F, c_stride, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  const std::vector<float> got = c_device.values();
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      float sum = 0;
      for (int l = 0; l < k; ++l) {
        const T x = a[static_cast<std::size_t>(a_transposed ? i * a_stride + l : l * a_stride + i)];
        const T y = b[static_cast<std::size_t>(b_transposed ? l * b_stride + j : j * b_stride + l)];
        sum += to_float(x) * to_float(y);
      }
      const auto at = static_cast<std::size_t>(j * c_stride + i);
      REQUIRE(got[at] == alpha * sum + (beta == 0.0f ? 0.0f : beta * c[at]));
    }
  }
}

}  // namespace

TEST_CASE("emulated cuBLAS - products equal plain loops") {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const int pad : {0, 3}) {
        check_product<float>(CUDA_R_32F, a_transposed, b_transposed, 5, 3, 17, pad, 0.0f);
        check_product<__nv_bfloat16>(CUDA_R_16BF, a_transposed, b_transposed, 9, 1, 33, pad, 0.0f);
        check_product<__half>(CUDA_R_16F, a_transposed, b_transposed, 4, 6, 8, pad, 1.0f);
        check_product<float>(CUDA_R_32F, a_transposed, b_transposed, 1, 1, 0, pad, 3.0f);
      }
    }
  }
}

TEST_CASE("emulated cuBLAS - what the real one refuses") {
  const TestStream stream;
  const Handle handle(stream);
  const DeviceArray<float> data(stream, 64);
  const float one = 1;
  const auto product = [&](int m, int a_stride, cudaDataType b_type, cublasComputeType_t compute) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 2, &one, data.data(), CUDA_R_32F,
                        a_stride, data.data() + 16, b_type, 2, &one, data.data() + 32, CUDA_R_32F,
                        4, compute, CUBLAS_GEMM_DEFAULT);
  };
  CHECK(product(4, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(product(4, 3, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product(-1, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product(4, 4, CUDA_R_16BF, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(product(4, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetWorkspace(handle, data.data() + 1, 16) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasSetWorkspace(handle, data.data(), 256) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetStream(nullptr, stream) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(std::string(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE)) ==
        "CUBLAS_STATUS_INVALID_VALUE");
}

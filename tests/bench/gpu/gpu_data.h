// Memory of the GPU for benchmarks. It holds random numbers: on zeros some of the work is faster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/core/random.h"
#include "common/core/tensor.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/device_rows.h"

namespace tp::bench {

// Uniform in [-1, 1). The numbers repeat, so that they are made in no time.
inline Tensor random_on_gpu(Device& device, const Shape& shape, DType dtype) {
  Tensor tensor = device.allocate(shape, dtype, "bench");
  const std::int64_t elements = shape.elements();
  const std::int64_t period = std::min<std::int64_t>(elements, 1 << 20);
  const auto flat = [&](Range part) {
    TensorView view = tensor;
    view.shape = {1, elements};
    view.row_stride = elements;
    view = view.columns_in(part);
    view.row_stride = part.size();
    return view;
  };
  Tensor numbers = Tensor::on_host({1, period});
  for (std::int64_t i = 0; i < period; ++i)
    numbers.row<float>(0)[i] = 2 * uniform(1, static_cast<std::uint64_t>(i)) - 1;
  device.write(numbers, flat({0, period}));
  for (std::int64_t begin = period; begin < elements; begin += period) {
    const std::int64_t size = std::min(period, elements - begin);
    device.copy(flat({0, size}), flat({begin, begin + size}));
  }
  return tensor;
}

// Integers, or structures of them, as they lie on the host.
template <class T>
Tensor integers_on_gpu(cuda::CudaDevice& device, const std::vector<T>& values) {
  constexpr std::size_t kWords = sizeof(T) / sizeof(std::int32_t);
  Tensor tensor =
      device.allocate({static_cast<std::int64_t>(values.size() * kWords)}, DType::i32, "bench");
  cuda::check(cudaMemcpyAsync(tensor.view().data, values.data(), values.size() * sizeof(T),
                              cudaMemcpyHostToDevice, device.stream()),
              "cudaMemcpyAsync to the GPU");
  device.synchronize();
  return tensor;
}

template <class T>
const T* pointer_to(Tensor& tensor) {
  return reinterpret_cast<const T*>(tensor.view().data);
}

inline cuda::Rows rows_of(TensorView x) {
  return {reinterpret_cast<float*>(x.data), x.row_stride};
}

inline cuda::WeightRows weight_of(ConstTensorView x) {
  return {x.data, x.dtype, x.row_stride};
}

}  // namespace tp::bench

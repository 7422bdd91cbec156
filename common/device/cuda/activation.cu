#include "common/device/cuda/activation.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kPack = 4;

__device__ __forceinline__ float apply(Activation act, float x) {
  if (act == Activation::silu) return x / (1.0f + expf(-x));
  return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

// A thread serves one pack of columns, in every gridDim.y-th row; it reads 16 bytes of gate and of
// up and writes 16 bytes.
template <int kPack>
__global__ void __launch_bounds__(kMaxThreads) gated_activation_kernel(const float* gate,
                                                                       std::int64_t gate_stride,
                                                                       const float* up,
                                                                       std::int64_t up_stride,
                                                                       float* y,
                                                                       std::int64_t y_stride,
                                                                       Extent size,
                                                                       Activation act) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    const auto g = load_pack<kPack>(gate + row * gate_stride + column);
    auto product = load_pack<kPack>(up + row * up_stride + column);
#pragma unroll
    for (int i = 0; i < kPack; ++i) product.values[i] *= apply(act, g.values[i]);
    store_pack(y + row * y_stride + column, product);
  }
}

// The same without up, in place.
template <int kPack>
__global__ void __launch_bounds__(kMaxThreads)
    activate_kernel(float* x, std::int64_t x_stride, Extent size, Activation act) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    auto pack = load_pack<kPack>(x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.values[i] = apply(act, pack.values[i]);
    store_pack(x + row * x_stride + column, pack);
  }
}

}  // namespace

void gated_activation(
    ConstRows gate, ConstRows up, Rows y, Extent size, Activation act, cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, gate) && packable(kPack, up) &&
                     packable(kPack, y);
  with_pack<kPack>(packs, [&](auto pack) {
    const RowGrid shape(size.rows, size.columns / pack);
    TP_LAUNCH((gated_activation_kernel<pack()>), shape.grid, shape.block, 0, stream, gate.data,
              gate.stride, up.data, up.stride, y.data, y.stride, size, act);
  });
}

void activate(Rows x, Extent size, Activation act, cudaStream_t stream) {
  if (empty(size)) return;
  with_pack<kPack>(size.columns % kPack == 0 && packable(kPack, x), [&](auto pack) {
    const RowGrid shape(size.rows, size.columns / pack);
    TP_LAUNCH((activate_kernel<pack()>), shape.grid, shape.block, 0, stream, x.data, x.stride, size,
              act);
  });
}

}  // namespace tp::cuda

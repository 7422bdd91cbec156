#include "common/device/cuda/elementwise.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

// A thread of these kernels serves one pack of columns, in every gridDim.y-th row (RowGrid).
// Neighbouring threads touch neighbouring packs, so a warp's access is one run of up to 512 bytes.
// There is no arithmetic to speak of: the bytes named at the launchers are the whole cost.
constexpr int kPack = 4;

template <int kPack>
__global__ void __launch_bounds__(kMaxThreads) add_kernel(
    float* x, std::int64_t x_stride, const float* y, std::int64_t y_stride, Extent size) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    auto sum = load_pack<kPack>(x + row * x_stride + column);
    const auto addend = load_pack<kPack>(y + row * y_stride + column);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum.values[i] += addend.values[i];
    store_pack(x + row * x_stride + column, sum);
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kMaxThreads)
    add_bias_kernel(float* x, std::int64_t x_stride, const T* bias, Extent size) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  const auto addend = widen(load_pack<kPack>(bias + column));
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    auto sum = load_pack<kPack>(x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum.values[i] += addend.values[i];
    store_pack(x + row * x_stride + column, sum);
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kMaxThreads)
    round_rows_kernel(const float* x, std::int64_t x_stride, T* out, Extent size) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    const auto wide = load_pack<kPack>(x + row * x_stride + column);
    store_pack(out + row * size.columns + column, narrow<T>(wide));
  }
}

template <int kPack>
__global__ void __launch_bounds__(kMaxThreads) select_rows_kernel(const float* x,
                                                                  std::int64_t x_stride,
                                                                  const std::int32_t* rows,
                                                                  float* y,
                                                                  std::int64_t y_stride,
                                                                  Extent size) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y)
    store_pack(y + row * y_stride + column, load_pack<kPack>(x + rows[row] * x_stride + column));
}

}  // namespace

void add(Rows x, ConstRows y, Extent size, cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, x) && packable(kPack, y);
  with_pack<kPack>(packs, [&](auto pack) {
    const RowGrid shape(size.rows, size.columns / pack);
    TP_LAUNCH((add_kernel<pack()>), shape.grid, shape.block, 0, stream, x.data, x.stride, y.data,
              y.stride, size);
  });
}

void add_bias(Rows x, WeightRows bias, Extent size, cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, x) && packable(kPack, bias);
  with_elements(bias.data, bias.dtype, [&]<class T>(const T* elements) {
    with_pack<kPack>(packs, [&](auto pack) {
      const RowGrid shape(size.rows, size.columns / pack);
      TP_LAUNCH((add_bias_kernel<T, pack()>), shape.grid, shape.block, 0, stream, x.data, x.stride,
                elements, size);
    });
  });
}

void round_rows(ConstRows x, Extent size, void* out, DType out_dtype, cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, x) &&
                     packable(kPack, out, size.columns, size_of(out_dtype));
  with_elements(out, out_dtype, [&]<class T>(T* elements) {
    with_pack<kPack>(packs, [&](auto pack) {
      const RowGrid shape(size.rows, size.columns / pack);
      TP_LAUNCH((round_rows_kernel<T, pack()>), shape.grid, shape.block, 0, stream, x.data,
                x.stride, elements, size);
    });
  });
}

void select_rows(ConstRows x, const std::int32_t* rows, Rows y, Extent size, cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, x) && packable(kPack, y);
  with_pack<kPack>(packs, [&](auto pack) {
    const RowGrid shape(size.rows, size.columns / pack);
    TP_LAUNCH((select_rows_kernel<pack()>), shape.grid, shape.block, 0, stream, x.data, x.stride,
              rows, y.data, y.stride, size);
  });
}

}  // namespace tp::cuda

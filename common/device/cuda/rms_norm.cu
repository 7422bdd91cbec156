#include "common/device/cuda/lanes.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/rms_norm.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kPack = 4;
constexpr int kThreads = 256;
constexpr int kHeld = 8;  // packs of its row that a thread keeps in registers

// What the kernel normalises: vectors of `columns` elements. Vector v is head v % heads of row
// v / heads; for whole rows heads is 1.
struct Vectors {
  std::int64_t count;
  std::int64_t heads;
  std::int64_t columns;
};

// The sum of `value` over the threads that serve one vector: a warp, or a block of kThreads, whose
// warps then put their sums into shared memory. Every thread adds them in the same order.
template <int kTeam>
__device__ __forceinline__ float sum_over_team(float value) {
  value = sum_over_lanes(value);
  if constexpr (kTeam == kThreads) {
    constexpr int kWarps = kThreads / kWarpSize;
    TP_SHARED(float, warp_sums, kWarps);
    if (threadIdx.x % kWarpSize == 0) warp_sums[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) value += warp_sums[warp];
  }
  return value;
}

// kTeam threads serve one vector: member m has the packs m, m + kTeam, m + 2 kTeam, ... It reads
// its first kHeld packs one right after the other, so that many bytes are on their way at once, and
// keeps them in registers until the sum of the squares is known: up to 8192 columns of f32 (with a
// team of 256) are read from memory once. Packs beyond are read a second time, mostly from a cache.
// Shared memory: one f32 per warp, if the team is a block.
template <class W, int kPack, int kTeam, bool kResidual>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const float* x,
                                                            std::int64_t x_stride,
                                                            const float* delta,
                                                            std::int64_t delta_stride,
                                                            float* sum,  // x + delta; only then
                                                            const W* weight,
                                                            float eps,
                                                            float* y,
                                                            std::int64_t y_stride,
                                                            Vectors vectors) {
  const std::int64_t vector = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kTeam) +
                              static_cast<int>(threadIdx.x) / kTeam;
  if (vector >= vectors.count) return;  // a whole team
  const int member = static_cast<int>(threadIdx.x) % kTeam;
  const std::int64_t row = vector / vectors.heads;
  const std::int64_t first = (vector % vectors.heads) * vectors.columns;
  x += row * x_stride + first;
  y += row * y_stride + first;
  if constexpr (kResidual) {
    delta += row * delta_stride + first;
    sum += row * x_stride + first;
  }
  const auto column_of = [&](std::int64_t pack) { return (member + pack * kTeam) * kPack; };

  Pack<float, kPack> held[kHeld];
#pragma unroll
  for (int pack = 0; pack < kHeld; ++pack)
    if (column_of(pack) < vectors.columns) held[pack] = load_pack<kPack>(x + column_of(pack));
  if constexpr (kResidual) {
    Pack<float, kPack> more[kHeld];
#pragma unroll
    for (int pack = 0; pack < kHeld; ++pack)
      if (column_of(pack) < vectors.columns) more[pack] = load_pack<kPack>(delta + column_of(pack));
#pragma unroll
    for (int pack = 0; pack < kHeld; ++pack) {
      if (column_of(pack) >= vectors.columns) continue;
#pragma unroll
      for (int i = 0; i < kPack; ++i) held[pack].values[i] += more[pack].values[i];
      store_pack(sum + column_of(pack), held[pack]);
    }
  }

  float squares = 0;
#pragma unroll
  for (int pack = 0; pack < kHeld; ++pack) {
    if (column_of(pack) >= vectors.columns) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      squares = fmaf(held[pack].values[i], held[pack].values[i], squares);
  }
  for (std::int64_t pack = kHeld; column_of(pack) < vectors.columns; ++pack) {
    auto values = load_pack<kPack>(x + column_of(pack));
    if constexpr (kResidual) {
      const auto addend = load_pack<kPack>(delta + column_of(pack));
#pragma unroll
      for (int i = 0; i < kPack; ++i) values.values[i] += addend.values[i];
      store_pack(sum + column_of(pack), values);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) squares = fmaf(values.values[i], values.values[i], squares);
  }

  const float mean_of_squares = sum_over_team<kTeam>(squares) / static_cast<float>(vectors.columns);
  const float scale = 1.0f / sqrtf(mean_of_squares + eps);
  const auto write = [&](std::int64_t column, Pack<float, kPack> values) {
    const auto w = widen(load_pack<kPack>(weight + column));
#pragma unroll
    for (int i = 0; i < kPack; ++i) values.values[i] *= scale * w.values[i];
    store_pack(y + column, values);
  };
#pragma unroll
  for (int pack = 0; pack < kHeld; ++pack)
    if (column_of(pack) < vectors.columns) write(column_of(pack), held[pack]);
  for (std::int64_t pack = kHeld; column_of(pack) < vectors.columns; ++pack)
    write(column_of(pack), load_pack<kPack>((kResidual ? sum : x) + column_of(pack)));
}

// sum and delta are null without a residual.
void launch_rms_norm(ConstRows x,
                     ConstRows delta,
                     float* sum,
                     WeightRows weight,
                     float eps,
                     Rows y,
                     Vectors vectors,
                     cudaStream_t stream) {
  if (vectors.count == 0 || vectors.columns == 0) return;
  const bool packs = vectors.columns % kPack == 0 && packable(kPack, x) && packable(kPack, y) &&
                     packable(kPack, delta) && packable(kPack, weight);
  with_elements(weight.data, weight.dtype, [&]<class W>(const W* elements) {
    with_pack<kPack>(packs, [&](auto pack) {
      const auto run = [&](auto team, auto residual) {
        const auto blocks = divide_up(vectors.count, kThreads / team);
        TP_LAUNCH((rms_norm_kernel<W, pack(), team(), residual()>),
                  dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, x.data, x.stride,
                  delta.data, delta.stride, sum, elements, eps, y.data, y.stride, vectors);
      };
      using Warp = std::integral_constant<int, kWarpSize>;
      using Block = std::integral_constant<int, kThreads>;
      const bool fits_warp = vectors.columns <= kWarpSize * kHeld * pack;
      if (fits_warp)
        sum ? run(Warp{}, std::true_type{}) : run(Warp{}, std::false_type{});
      else
        sum ? run(Block{}, std::true_type{}) : run(Block{}, std::false_type{});
    });
  });
}

}  // namespace

void rms_norm(ConstRows x, WeightRows weight, float eps, Rows y, Extent size, cudaStream_t stream) {
  launch_rms_norm(x, {}, nullptr, weight, eps, y, {size.rows, 1, size.columns}, stream);
}

void add_rms_norm(Rows x,
                  ConstRows delta,
                  WeightRows weight,
                  float eps,
                  Rows y,
                  Extent size,
                  cudaStream_t stream) {
  launch_rms_norm(x, delta, x.data, weight, eps, y, {size.rows, 1, size.columns}, stream);
}

void rms_norm_heads(Rows x, WeightRows weight, float eps, HeadRows size, cudaStream_t stream) {
  launch_rms_norm(x, {}, nullptr, weight, eps, x,
                  {size.rows * size.heads, size.heads, size.head_dim}, stream);
}

}  // namespace tp::cuda

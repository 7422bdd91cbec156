// How launchers choose a kernel and a grid. [introduced in chapter 01]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/core/dtype.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/device_rows.h"
#include "cuda_language.h"

namespace tp::cuda {

inline constexpr int kMaxThreads = 256;     // of a block
inline constexpr int kMaxGridRows = 65535;  // CUDA's limit for gridDim.y and .z

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

inline bool empty(Extent size) {
  return size.rows == 0 || size.columns == 0;
}

// Calls use(elements) with the elements in the C++ type that a kernel reads them in.
// Errors: tp::Error (input) for i32.
template <class Void, class Use>
void with_elements(Void* data, DType dtype, const Use& use) {
  const auto as = [data]<class T>(T) {
    return static_cast<std::conditional_t<std::is_const_v<Void>, const T, T>*>(data);
  };
  switch (dtype) {
    case DType::f32:
      return use(as(float{}));
    case DType::bf16:
      return use(as(__nv_bfloat16{}));
    case DType::f16:
      return use(as(__half{}));
    case DType::i32:
      break;
  }
  require(false, "a kernel was given i32 where it reads f32, bf16 or f16");
}

// Calls use(constant) with kPack if packs of so many elements can be used, else with 1: the scalar
// path. use takes it as a template argument: kernel<pack()>.
template <int kPack, class Use>
void with_pack(bool packs, const Use& use) {
  if (packs)
    use(std::integral_constant<int, kPack>{});
  else
    use(std::integral_constant<int, 1>{});
}

// Whether the rows can be accessed `pack` elements at a time: each starts at a multiple of a pack's
// bytes, or of 16 if that is less.
inline bool packable(int pack, const void* data, std::int64_t stride, std::size_t element_bytes) {
  const std::size_t bytes =
      std::min<std::size_t>(16, static_cast<std::size_t>(pack) * element_bytes);
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 && stride % pack == 0;
}
inline bool packable(int pack, ConstRows x) {
  return packable(pack, x.data, x.stride, sizeof(float));
}
inline bool packable(int pack, WeightRows w) {
  return packable(pack, w.data, w.stride, size_of(w.dtype));
}

// Blocks for kernels where a thread serves one pack of columns: the x axis runs over the packs of a
// row, the y axis over rows; a block takes row blockIdx.y and every gridDim.y-th after it.
struct RowGrid {
  dim3 grid, block;

  RowGrid(std::int64_t rows, std::int64_t packs) {
    const std::int64_t threads = std::min<std::int64_t>(kMaxThreads, divide_up(packs, 32) * 32);
    block = dim3(static_cast<unsigned>(threads));
    grid = dim3(static_cast<unsigned>(divide_up(packs, threads)),
                static_cast<unsigned>(std::min<std::int64_t>(rows, kMaxGridRows)));
  }
};

// In such a kernel: which pack of its row the thread serves.
__device__ __forceinline__ std::int64_t pack_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace tp::cuda

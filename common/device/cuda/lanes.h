// Sums over the lanes of a warp. [introduced in chapter 06]
#pragma once

#include "cuda_language.h"

namespace tp::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// The sum over the kLanes neighbouring lanes of each lane, in the same order on all of them: first
// lanes kLanes / 2 apart are added, last those 1 apart. All lanes of the warp call it together.
template <int kLanes = kWarpSize>
__device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2)
    value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}

// The same with the largest value.
template <int kLanes = kWarpSize>
__device__ __forceinline__ float max_over_lanes(float value) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, apart));
  return value;
}

}  // namespace tp::cuda

// Elements that a kernel reads or writes in one access. [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda_language.h"

namespace tp::cuda {

// kCount elements side by side, aligned so that they move in accesses of up to 16 bytes. A kernel
// template with kCount = 1 is its own scalar path, for sizes and addresses that do not allow more.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T values[kCount];
};

template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}

template <class T, int kCount>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

// To f32; exact.
__device__ __forceinline__ float widen(float value) {
  return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float widen(__half value) {
  return __half2float(value);
}

template <class T, int kCount>
__device__ __forceinline__ Pack<float, kCount> widen(const Pack<T, kCount>& pack) {
  Pack<float, kCount> wide;
#pragma unroll
  for (int i = 0; i < kCount; ++i) wide.values[i] = widen(pack.values[i]);
  return wide;
}

// A bf16 is the upper half of an f32, and two of them lie in one word: one instruction for each,
// where the compiler takes two to get at a single one.
template <int kCount>
requires(kCount % 2 == 0)
    __device__ __forceinline__ Pack<float, kCount> widen(const Pack<__nv_bfloat16, kCount>& pack) {
  std::uint32_t words[kCount / 2], wide_bits[kCount];
  memcpy(words, &pack, sizeof words);
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    wide_bits[2 * i] = words[i] << 16;
    wide_bits[2 * i + 1] = words[i] & 0xffff0000u;
  }
  Pack<float, kCount> wide;
  memcpy(&wide, wide_bits, sizeof wide);
  return wide;
}

// From f32 to the nearest value, ties to even.
__device__ __forceinline__ void narrow(float value, float& to) {
  to = value;
}
__device__ __forceinline__ void narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16(value);
}
__device__ __forceinline__ void narrow(float value, __half& to) {
  to = __float2half(value);
}
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> narrow(const Pack<float, kCount>& pack) {
  Pack<T, kCount> narrowed;
#pragma unroll
  for (int i = 0; i < kCount; ++i) narrow(pack.values[i], narrowed.values[i]);
  return narrowed;
}

}  // namespace tp::cuda

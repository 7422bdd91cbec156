// Arithmetic that CUDA has and <cmath> lacks. The fast versions (__expf) are the exact ones here:
// compare with tolerances.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

// glibc declares names like __expf for itself, so a function of that name would clash; a macro does
// not.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __cosf(x) cosf(x)
#define __sinf(x) sinf(x)

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}

// A load through the read-only cache.
template <class T>
T __ldg(const T* address) {
  return *address;
}

// CUDA has these for any two arithmetic types; here both must be of one type.
template <class T>
requires std::is_arithmetic_v<T> T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
requires std::is_arithmetic_v<T> T max(T a, T b) {
  return a < b ? b : a;
}

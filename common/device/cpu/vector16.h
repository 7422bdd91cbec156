// Sixteen floats, in whatever registers this translation unit is compiled for. [introduced in
// chapter 01]
//
// Included only by kernels.cpp, which is compiled once per instruction set. Everything is in an
// unnamed namespace, so that no copy compiled for a newer processor is ever used on an older one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)

struct Vector16 {
  __m512 lanes;
};
inline Vector16 zero16() {
  return {_mm512_setzero_ps()};
}
inline Vector16 load16(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline Vector16 load16(const std::uint16_t* p) {  // bf16: the upper halves of floats
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}
inline void store16(float* p, Vector16 v) {
  _mm512_storeu_ps(p, v.lanes);
}
inline Vector16 fma16(Vector16 a, Vector16 b, Vector16 c) {
  return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)};
}
inline __m256 sum_of_halves(Vector16 v) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v.lanes), 1));
  return _mm256_add_ps(_mm512_castps512_ps256(v.lanes), high);
}

#elif defined(__AVX2__)

struct Vector16 {
  __m256 low, high;
};
inline Vector16 zero16() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Vector16 load16(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline __m256 widen8(const std::uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline Vector16 load16(const std::uint16_t* p) {  // bf16: the upper halves of floats
  return {widen8(p), widen8(p + 8)};
}
inline void store16(float* p, Vector16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline Vector16 fma16(Vector16 a, Vector16 b, Vector16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline __m256 sum_of_halves(Vector16 v) {
  return _mm256_add_ps(v.low, v.high);
}

#else

struct Vector16 {
  float lanes[16];
};
inline Vector16 zero16() {
  return {};
}
inline float widen(float x) {
  return x;
}
inline float widen(std::uint16_t bits) {  // bf16: the upper half of a float
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}
template <class T>
Vector16 load16(const T* p) {
  Vector16 v;
  for (int i = 0; i < 16; ++i) v.lanes[i] = widen(p[i]);
  return v;
}
inline void store16(float* p, Vector16 v) {
  std::memcpy(p, v.lanes, sizeof v.lanes);
}
inline Vector16 fma16(Vector16 a, Vector16 b, Vector16 c) {
  for (int i = 0; i < 16; ++i) c.lanes[i] = __builtin_fmaf(a.lanes[i], b.lanes[i], c.lanes[i]);
  return c;
}

#endif

// Adds the lanes 8 apart, then 4, 2 and 1 apart: the order of reference::dot.
inline float sum16(Vector16 v) {
#if defined(__AVX2__) || defined(__AVX512F__)
  const __m256 eight = sum_of_halves(v);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  for (int apart = 8; apart > 0; apart /= 2)
    for (int j = 0; j < apart; ++j) v.lanes[j] += v.lanes[j + apart];
  return v.lanes[0];
#endif
}

}  // namespace

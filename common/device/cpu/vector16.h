// Sixteen running sums, in whatever registers this translation unit is compiled for.
// [introduced in chapter 01]
//
// A register (Vector) holds kWidth floats, so kParts of them hold the 16 sums: part p has the sums
// kWidth * p, kWidth * p + 1, ... Included only by kernels.cpp, which is compiled once per
// instruction set. Everything is in an unnamed namespace, so that no copy compiled for a newer
// processor is ever used on an older one.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)

using Vector = __m512;
constexpr int kWidth = 16;
constexpr int kTileRows = 4;  // 4 * 4 sums, 4 x and a w: 21 of 32 registers

// Some instructions are asked for in their masked form, with all lanes: of the plain one gcc 12
// warns that its own header uses an uninitialized variable. The instruction is the same.
constexpr __mmask16 kAllLanes = 0xffff;

inline Vector zeros() {
  return _mm512_setzero_ps();
}
inline Vector load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Vector load(const std::uint16_t* p) {  // bf16: the upper halves of floats
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i words = _mm512_maskz_cvtepu16_epi32(kAllLanes, halves);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, words, 16));
}
inline void store(float* p, Vector v) {
  _mm512_storeu_ps(p, v);
}
inline Vector fma(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vector all_lanes(float a) {
  return _mm512_set1_ps(a);
}

#elif defined(__AVX2__)

using Vector = __m256;
constexpr int kWidth = 8;
constexpr int kTileRows = 3;  // 3 * 4 sums, 3 x and a w: all 16 registers

inline Vector zeros() {
  return _mm256_setzero_ps();
}
inline Vector load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Vector load(const std::uint16_t* p) {  // bf16: the upper halves of floats
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline void store(float* p, Vector v) {
  _mm256_storeu_ps(p, v);
}
inline Vector fma(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vector all_lanes(float a) {
  return _mm256_set1_ps(a);
}

#else

struct Vector {
  float lanes[4];
};
constexpr int kWidth = 4;
constexpr int kTileRows = 4;

inline Vector zeros() {
  return {};
}
inline Vector load(const float* p) {
  return {{p[0], p[1], p[2], p[3]}};
}
inline Vector load(const std::uint16_t* p) {  // bf16: the upper halves of floats
  Vector v;
  for (int i = 0; i < kWidth; ++i) {
    const std::uint32_t word = static_cast<std::uint32_t>(p[i]) << 16;
    std::memcpy(&v.lanes[i], &word, sizeof word);
  }
  return v;
}
inline void store(float* p, Vector v) {
  std::memcpy(p, v.lanes, sizeof v.lanes);
}
inline Vector fma(Vector a, Vector b, Vector c) {
  for (int i = 0; i < kWidth; ++i) c.lanes[i] = __builtin_fmaf(a.lanes[i], b.lanes[i], c.lanes[i]);
  return c;
}
inline Vector all_lanes(float a) {
  return {{a, a, a, a}};
}

#endif

constexpr int kParts = 16 / kWidth;

struct Sums16 {
  Vector part[kParts];
};

// Adds the sums 8 apart, then 4, 2 and 1 apart (the order of reference::dot), of four Sums16 at
// once: out[j] becomes the total of s[j].
#if defined(__AVX2__) || defined(__AVX512F__)

inline __m128 four_of(const Sums16& s) {
#if defined(__AVX512F__)
  constexpr __mmask8 kFour = 0xff;  // lanes of two floats
  const __m512d sixteen = _mm512_castps_pd(s.part[0]);
  const __m256d low = _mm512_maskz_extractf64x4_pd(kFour, sixteen, 0);
  const __m256d high = _mm512_maskz_extractf64x4_pd(kFour, sixteen, 1);
  const __m256 eight = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
#else
  const __m256 eight = _mm256_add_ps(s.part[0], s.part[1]);
#endif
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

inline void add_up(const Sums16 (&s)[4], float* out) {
  const __m128 a = four_of(s[0]), b = four_of(s[1]), c = four_of(s[2]), d = four_of(s[3]);
  // a0+a2, b0+b2, a1+a3, b1+b3; the same of c and d; then the even ones plus the odd ones.
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}

#else

inline void add_up(const Sums16 (&s)[4], float* out) {
  for (int j = 0; j < 4; ++j) {
    float lanes[16];
    std::memcpy(lanes, &s[j], sizeof lanes);
    for (int apart = 8; apart > 0; apart /= 2)
      for (int i = 0; i < apart; ++i) lanes[i] += lanes[i + apart];
    out[j] = lanes[0];
  }
}

#endif

}  // namespace

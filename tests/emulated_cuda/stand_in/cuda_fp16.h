// Stands in for the toolkit's header where there is no toolkit: f16 as a storage format.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda_runtime.h"

// 1 sign bit, 5 exponent bits, 10 fraction bits.
struct alignas(2) __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;  // exponent and fraction in place
  if (magnitude >= 0x7c00u << 13) {
    return std::bit_cast<float>(sign | magnitude | 0x7f800000u);  // infinity or NaN
  }
  // The exponent's zero point differs. A product moves it, and normalises subnormal values.
  return std::bit_cast<float>(
      sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f));
}

// Rounds to the nearest, ties to even.
inline __half __float2half_rn(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return {0x7fff};  // NaN, as the toolkit makes it
  }
  if (magnitude >= 0x477ff000u) {  // 65520: halfway between the largest f16 and what would follow
    return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  }
  if (magnitude <
      0x38800000u) {  // below 2^-14 the steps are 2^-24: adding 0.5 leaves just these bits
    const auto shifted = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return {static_cast<std::uint16_t>(sign | (shifted - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}
inline __half __float2half(float value) {
  return __float2half_rn(value);
}

// Element types of tensors and their conversions. [introduced in chapter 01]
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tp {

enum class DType : std::uint8_t { f32, bf16, f16, i32 };

// Bytes of one element.
std::size_t size_of(DType dtype);

// "f32", "bf16", "f16", "i32".
std::string_view name_of(DType dtype);

// The inverse. Errors: tp::Error (input) for an unknown name.
DType dtype_from_name(std::string_view name);

// A bfloat16: the upper half of a float. Only a storage format, arithmetic is done in float.
struct bf16 {
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};

inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// A half-precision float: 1 sign bit, 5 exponent bits, 10 fraction bits. Weight files hold it.
// Source: IEEE 754, binary16.
struct f16 {
  std::uint16_t bits = 0;
  friend bool operator==(f16, f16) = default;
};

// Exact: every f16 is a float. Without branches, so that a loop of it becomes vector code.
inline float to_float(f16 value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;  // exponent and fraction in place
  // The exponent of a float has another zero point. A product cures it, also of subnormal values.
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const bool finite = magnitude < 0x7c00u << 13;
  return std::bit_cast<float>(sign | (finite ? scaled : magnitude | 0x7f800000u));
}

inline float to_float(float value) {
  return value;
}

// Rounds to the nearest bf16, ties to even; a NaN stays a NaN.
inline bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);  // ties go to the even neighbour
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t word = is_nan ? (bits >> 16) | 0x40u : (bits + half) >> 16;  // keep it quiet
  return {static_cast<std::uint16_t>(word)};
}

// Rounds to the nearest f16, ties to even; from 65520 on to infinity; a NaN stays a NaN.
inline f16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    rounded = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Subnormal: in 0.5 + value, a float's last bit is worth 2^-24, like that of a subnormal f16.
    rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    const std::uint32_t half = 0xfffu + ((magnitude >> 13) & 1u);  // ties go to the even neighbour
    rounded = (magnitude - (112u << 23) + half) >> 13;             // another zero of the exponent
  }
  return {static_cast<std::uint16_t>(sign | rounded)};
}

// The DType of a C++ element type.
template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;

}  // namespace tp

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

// Exact: every f16 is a float.
float to_float(f16 value);

inline float to_float(float value) {
  return value;
}

// Rounds to the nearest bf16, ties to even; a NaN stays a NaN.
bf16 to_bf16(float value);

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

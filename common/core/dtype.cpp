#include "common/core/dtype.h"

#include <cmath>
#include <string>

#include "common/core/error.h"

namespace tp {

std::size_t size_of(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? 2 : 4;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
  }
  return "?";
}

float to_float(f16 value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1f;
  const std::uint32_t fraction = value.bits & 0x3ff;
  if (exponent == 0) {  // zero, or subnormal: fraction units of 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t wide =
      exponent == 0x1f ? 0xff : exponent + 127 - 15;  // infinity and NaN stay
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

DType dtype_from_name(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32})
    if (name_of(dtype) == name) return dtype;
  throw input_error("dtype " + std::string(name) + ": must be f32, bf16, f16 or i32");
}

bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};  // keep it quiet
  const std::uint32_t half = 0x7fff + ((bits >> 16) & 1);  // ties go to the even neighbour
  return {static_cast<std::uint16_t>((bits + half) >> 16)};
}

}  // namespace tp

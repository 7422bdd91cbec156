#include "common/core/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

namespace {

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

}  // namespace

TEST_CASE("bf16 words are the upper halves of floats") {
  CHECK(to_float(bf16{0x3f80}) == 1.0f);
  CHECK(to_float(bf16{0xc2f7}) == -123.5f);
  CHECK(to_float(bf16{0x4780}) == 65536.0f);
  CHECK(to_float(bf16{0x0001}) == 0x1p-133f);
  CHECK(std::abs(to_float(bf16{0x0001}) - 9.18355e-41f) < 1e-45f);
  CHECK(to_float(bf16{0x7f80}) == std::numeric_limits<float>::infinity());
  CHECK(to_float(bf16{0xff80}) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(to_float(bf16{0x7fc0})));
  CHECK(bits_of(to_float(bf16{0x8000})) == 0x80000000u);
}

TEST_CASE("f16 words become the floats of IEEE 754") {
  CHECK(to_float(f16{0x3c00}) == 1.0f);
  CHECK(to_float(f16{0xc000}) == -2.0f);
  CHECK(to_float(f16{0x7bff}) == 65504.0f);
  CHECK(to_float(f16{0x0001}) == 5.9604645e-8f);     // the smallest subnormal, 2^-24
  CHECK(to_float(f16{0x83ff}) == -1023 * 0x1p-24f);  // the largest subnormal, negative
  CHECK(to_float(f16{0x0400}) == 0x1p-14f);          // the smallest normal
  CHECK(to_float(f16{0x7c00}) == std::numeric_limits<float>::infinity());
  CHECK(to_float(f16{0xfc00}) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(to_float(f16{0x7e00})));
  CHECK(std::isnan(to_float(f16{0x7c01})));
  CHECK(bits_of(to_float(f16{0x8000})) == 0x80000000u);
}

TEST_CASE("every finite f16 is exact and in order") {
  for (std::uint16_t bits = 1; bits < 0x7c00; ++bits) {
    const float below = to_float(f16{static_cast<std::uint16_t>(bits - 1)});
    const float here = to_float(f16{bits});
    const int exponent = bits >> 10 == 0 ? 1 : bits >> 10;
    const int fraction = bits >> 10 == 0 ? bits & 0x3ff : (bits & 0x3ff) | 0x400;
    const bool right =
        here > below && here == std::ldexp(static_cast<float>(fraction), exponent - 25);
    if (!right) FAIL("f16 word " << bits << " became " << here);
  }
}

TEST_CASE("bf16 rounds to the nearest with ties to even") {
  CHECK(to_bf16(1.0f) == bf16{0x3f80});
  CHECK(to_bf16(float_of(0x3f807fff)) == bf16{0x3f80});  // just below the middle: down
  CHECK(to_bf16(float_of(0x3f808000)) == bf16{0x3f80});  // the middle: to the even one below
  CHECK(to_bf16(float_of(0x3f808001)) == bf16{0x3f81});  // just above the middle: up
  CHECK(to_bf16(float_of(0x3f817fff)) == bf16{0x3f81});
  CHECK(to_bf16(float_of(0x3f818000)) == bf16{0x3f82});  // the middle: to the even one above
  CHECK(to_bf16(float_of(0xbf808000)) == bf16{0xbf80});  // the same for negative numbers
  CHECK(to_bf16(float_of(0xbf818000)) == bf16{0xbf82});
  CHECK(to_bf16(257.0f) == to_bf16(256.0f));
  CHECK(to_bf16(259.0f) == to_bf16(260.0f));
  CHECK(to_bf16(float_of(0x3fffffff)) == bf16{0x4000});  // carries into the exponent
}

TEST_CASE("infinities stay and the largest floats round to them") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(to_bf16(kInfinity) == bf16{0x7f80});
  CHECK(to_bf16(-kInfinity) == bf16{0xff80});
  CHECK(to_bf16(std::numeric_limits<float>::max()) == bf16{0x7f80});
  CHECK(to_bf16(float_of(0x7f7f0000)) == bf16{0x7f7f});  // the largest bf16
}

TEST_CASE("a NaN stays a NaN also when its payload is in the lower half") {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    CHECK(std::isnan(to_float(to_bf16(float_of(bits)))));
}

TEST_CASE("every bf16 survives the way through float") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const bf16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (!std::isnan(wide) && to_bf16(wide) != value) FAIL("bf16 word " << bits);
  }
}

TEST_CASE("every f16 survives the way through float") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const f16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide) ? !std::isnan(to_float(to_f16(wide))) : to_f16(wide) != value)
      FAIL("f16 word " << bits);
  }
}

TEST_CASE("f16 rounds to the nearest with ties to even") {
  CHECK(to_f16(1.0f) == f16{0x3c00});
  CHECK(to_f16(1.0f + 0x1p-11f) == f16{0x3c00});             // the middle: to the even one below
  CHECK(to_f16(1.0f + 0x1p-11f + 0x1p-23f) == f16{0x3c01});  // just above
  CHECK(to_f16(1.0f + 0x3p-11f) == f16{0x3c02});             // the middle: to the even one above
  CHECK(to_f16(-1.0f - 0x3p-11f) == f16{0xbc02});
  CHECK(to_f16(0x1.ffep0f) == f16{0x4000});  // carries into the exponent
  CHECK(to_f16(0x1p-25f) == f16{0});         // the middle of 0 and the smallest: to 0
  CHECK(to_f16(0x1.8p-25f) == f16{1});
  CHECK(to_f16(0x3p-25f) == f16{2});  // the middle of 1 and 2: to 2
  CHECK(to_f16(-0x1p-30f) == f16{0x8000});
  CHECK(to_f16(0x1.ff8p-15f) == f16{0x03ff});  // the largest subnormal
  CHECK(to_f16(0x1.ffcp-15f) == f16{0x0400});  // a middle: up to the smallest normal
  CHECK(to_f16(65519.0f) == f16{0x7bff});
  CHECK(to_f16(65520.0f) == f16{0x7c00});
  CHECK(std::isnan(to_float(to_f16(float_of(0x7f800001)))));
}

TEST_CASE("dtypes have sizes and names") {
  CHECK(size_of(DType::f32) == 4);
  CHECK(size_of(DType::bf16) == 2);
  CHECK(size_of(DType::f16) == 2);
  CHECK(size_of(DType::i32) == 4);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32})
    CHECK(dtype_from_name(name_of(dtype)) == dtype);
  CHECK_THROWS_WITH(dtype_from_name("F32"), ContainsSubstring("F32") && ContainsSubstring("bf16"));
}

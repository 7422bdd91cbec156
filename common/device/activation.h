// The activation functions of an MLP. [introduced in chapter 01]
#pragma once

#include <cstdint>

namespace tp {

enum class Activation : std::uint8_t {
  silu,  // x / (1 + e^-x)
  gelu,  // x * (1 + erf(x / sqrt 2)) / 2, the exact form
};

}  // namespace tp

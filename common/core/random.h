// Random numbers that are a function of (seed, index): no state, the same on every rank and machine.
// [introduced in chapter 01]
#pragma once

#include <cstdint>

namespace tp {

// 64 well-mixed bits.
// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (SplitMix64).
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Uniform in [0, 1), 24 random bits.
inline float uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<float>(random_bits(seed, index) >> 40) * 0x1p-24f;
}

}  // namespace tp

#include "common/device/rope_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace tp {

namespace {

// Between the frequency as it is (share 0) and divided by factor (share 1).
double blend(double frequency, double factor, double share) {
  return frequency * (1 - share) + frequency / factor * share;
}

// By how many times the wavelength fits into a text of the original length.
double llama3(double frequency, const RopeConfig& rope) {
  const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency /
                       (2 * std::numbers::pi);
  const double kept =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return blend(frequency, rope.factor, 1 - std::clamp(kept, 0.0, 1.0));
}

// The pairs between which yarn goes over from kept to divided ones.
struct Ramp {
  double low, high;

  double share(std::int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  }
};

Ramp yarn_ramp(const RopeConfig& rope, std::int64_t head_dim) {
  const auto width = static_cast<double>(head_dim);
  // Which pair makes this many turns in a text of the original length; no whole number.
  const auto pair_with = [&](double turns) {
    const double angle = 2 * std::numbers::pi * turns;
    return width * std::log(static_cast<double>(rope.original_max_position_embeddings) / angle) /
           (2 * std::log(rope.rope_theta));
  };
  Ramp ramp{pair_with(rope.beta_fast), pair_with(rope.beta_slow)};
  if (rope.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, width - 1)};
  if (ramp.low == ramp.high) ramp.high += 0.001;  // a step
  return ramp;
}

}  // namespace

std::string_view name_of(RopeType type) {
  constexpr std::array<std::string_view, 4> kNames{"default", "linear", "llama3", "yarn"};
  return kNames[static_cast<std::size_t>(type)];
}

std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    // Rounded to f32 already here, as it was when the models were trained.
    const auto plain = static_cast<float>(std::pow(rope.rope_theta, exponent));
    double frequency = plain;
    if (rope.type == RopeType::linear) frequency = plain / rope.factor;
    if (rope.type == RopeType::llama3) frequency = llama3(plain, rope);
    if (rope.type == RopeType::yarn)
      frequency = blend(plain, rope.factor, yarn_ramp(rope, head_dim).share(i));
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace tp

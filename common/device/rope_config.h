// At which frequencies RoPE turns the pairs of a head. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tp {

// How a model that was trained on short texts was taught longer ones: pairs that turn slowly have
// not gone full circle in training, so they are slowed down by `factor` to stay where they have
// been. Fast pairs tell neighbours apart and are kept.
enum class RopeType : std::uint8_t {
  unscaled,  // "default" in config.json
  linear,    // every frequency is divided by factor
  llama3,    // kept and divided ones are told apart by their wavelength, with a blend between them
  yarn,      // by their number of turns, and cos and sin are multiplied by attention_factor
};

// "default", "linear", "llama3" or "yarn", as in config.json.
std::string_view name_of(RopeType type);

// The parameters of all types, under their Hugging Face names. Each type reads its own.
struct RopeConfig {
  RopeType type = RopeType::unscaled;
  double rope_theta = 10000;                          // > 1 for yarn
  double factor = 1;                                  // linear, llama3, yarn
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn: tokens in training
  double low_freq_factor = 1, high_freq_factor = 4;   // llama3; low < high
  double beta_fast = 32, beta_slow = 1;               // yarn; slow <= fast
  bool truncate = true;         // yarn: the blend begins and ends at whole pairs
  double attention_factor = 1;  // yarn

  bool operator==(const RopeConfig&) const = default;
};

// The token at position p turns pair i by the angle p * frequencies[i]; head_dim / 2 of them.
// Source: Su et al. 2021 (RoFormer), equation 15; Chen et al. 2023 (Position Interpolation) for
//         linear; Peng et al. 2023 (YaRN), section 3.2; Hugging Face transformers for llama3.
std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim);

// The attention_factor of a yarn model that gives none. YaRN, section 3.4, with mscale = 1.
double yarn_attention_factor(double factor, double mscale = 1);

}  // namespace tp

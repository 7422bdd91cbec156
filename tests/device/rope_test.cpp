// The frequencies of RoPE, plain and stretched, against published values.
#include <cmath>
#include <vector>

#include "common/device/device.h"
#include "common/device/rope_config.h"
#include "common/device/rope_table.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr std::int64_t kHeadDim = 128;

// Llama 3.1: 8 times the length of its first training.
const RopeConfig kLlama3{.type = RopeType::llama3,
                         .rope_theta = 500000,
                         .factor = 8,
                         .original_max_position_embeddings = 8192,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4};

RopeConfig yarn() {
  return {.type = RopeType::yarn,
          .rope_theta = 1e6,
          .factor = 4,
          .original_max_position_embeddings = 32768,
          .attention_factor = yarn_attention_factor(4)};
}

std::vector<float> plain(double theta) {
  return rope_frequencies({.rope_theta = theta}, kHeadDim);
}

bool close(float found, double wanted) {
  return std::abs(static_cast<double>(found) - wanted) <= 1e-6 * wanted;
}

}  // namespace

TEST_CASE("unscaled frequencies are powers of theta") {
  const auto frequencies = plain(500000);
  REQUIRE(frequencies.size() == 64);
  REQUIRE(frequencies[0] == 1);
  REQUIRE(close(frequencies[29], 2.616099e-3));
  REQUIRE(close(frequencies[32], 1.414214e-3));
  REQUIRE(close(frequencies[35], 7.644970e-4));
}

TEST_CASE("linear divides every frequency") {
  const auto frequencies =
      rope_frequencies({.type = RopeType::linear, .rope_theta = 500000, .factor = 4}, kHeadDim);
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(frequencies[i] == plain(500000)[i] / 4);
}

TEST_CASE("llama3 keeps short wavelengths and divides long ones with a blend between") {
  const auto frequencies = rope_frequencies(kLlama3, kHeadDim);
  for (std::size_t i = 0; i <= 28; ++i) REQUIRE(frequencies[i] == plain(500000)[i]);
  for (std::size_t i = 29; i <= 34; ++i) {
    REQUIRE(frequencies[i] < plain(500000)[i]);
    REQUIRE(frequencies[i] > plain(500000)[i] / 8);
  }
  for (std::size_t i = 35; i < 64; ++i) REQUIRE(frequencies[i] == plain(500000)[i] / 8);
  REQUIRE(close(frequencies[28], 3.211446e-3));
  REQUIRE(close(frequencies[29], 2.166571e-3));
  REQUIRE(close(frequencies[32], 5.248462e-4));
  REQUIRE(close(frequencies[34], 1.785078e-4));
  REQUIRE(close(frequencies[35], 9.556212e-5));
  REQUIRE(close(frequencies[63], 3.068926e-7));
}

TEST_CASE("yarn blends between whole pairs") {
  const auto frequencies = rope_frequencies(yarn(), kHeadDim);
  for (std::size_t i = 0; i <= 23; ++i) REQUIRE(frequencies[i] == plain(1e6)[i]);
  for (std::size_t i = 40; i < 64; ++i) REQUIRE(frequencies[i] == plain(1e6)[i] / 4);
  REQUIRE(close(frequencies[23], 6.978306e-3));
  REQUIRE(close(frequencies[24], 5.375321e-3));
  REQUIRE(close(frequencies[32], 6.029412e-4));
  REQUIRE(close(frequencies[39], 6.490394e-5));
  REQUIRE(close(frequencies[40], 4.445699e-5));

  RopeConfig not_truncated = yarn();  // from 23.596 to 39.651 instead of from 23 to 40
  not_truncated.truncate = false;
  const auto finer = rope_frequencies(not_truncated, kHeadDim);
  REQUIRE(finer[23] == frequencies[23]);
  REQUIRE(finer[24] > frequencies[24]);
  REQUIRE(finer[39] < frequencies[39]);
  REQUIRE(finer[40] == frequencies[40]);
}

TEST_CASE("a yarn blend of no width is a step") {
  RopeConfig step = yarn();
  step.beta_slow = step.beta_fast;
  step.truncate = false;  // both ends at 23.596
  const auto frequencies = rope_frequencies(step, kHeadDim);
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(frequencies[i] == plain(1e6)[i] / (i <= 23 ? 1 : 4));
}

TEST_CASE("the attention factor of yarn multiplies cos and sin at every position") {
  REQUIRE(std::abs(yarn_attention_factor(4) - 1.138629) < 1e-6);
  REQUIRE(yarn_attention_factor(1) == 1);
  REQUIRE(std::abs(yarn_attention_factor(4, 0.5) - 1.0693147) < 1e-6);
  const auto device = make_cpu_device();
  RopeConfig one = yarn();
  one.attention_factor = 1;
  const RopeTable scaled(*device, 50, kHeadDim, yarn()), unscaled(*device, 50, kHeadDim, one);
  for (std::int64_t p = 0; p < 50; ++p) {
    for (std::int64_t i = 0; i < kHeadDim / 2; ++i) {
      const float c = scaled.cos.row<float>(p)[i], s = scaled.sin.row<float>(p)[i];
      REQUIRE(c == unscaled.cos.row<float>(p)[i] * 1.1386294f);
      REQUIRE(s == unscaled.sin.row<float>(p)[i] * 1.1386294f);
    }
  }
  REQUIRE(close(scaled.cos.row<float>(0)[0], 1.138629));
}

TEST_CASE("a table of theta alone is the unscaled one") {
  const auto device = make_cpu_device();
  const RopeTable a(*device, 9, 12, 10000), b(*device, 9, 12, RopeConfig{});
  for (std::int64_t p = 0; p < 9; ++p)
    for (std::int64_t i = 0; i < 6; ++i) {
      REQUIRE(a.cos.row<float>(p)[i] == b.cos.row<float>(p)[i]);
      REQUIRE(a.sin.row<float>(p)[i] == b.sin.row<float>(p)[i]);
    }
}

// Cosines and sines of the rotary position embedding. [introduced in chapter 03]
#pragma once

#include <cstdint>

#include "common/core/tensor.h"
#include "common/device/rope_config.h"

namespace tp {

class Device;

// Row p, column i: cos and sin of the angle p * theta^(-2i / head_dim).
// Source: Su et al. 2021 (RoFormer), equation 15. The pairs are (i, i + head_dim / 2), as in the
// checkpoints of Hugging Face, not (2i, 2i + 1) as in the paper.
struct RopeTable {
  Tensor cos, sin;  // [positions, head_dim / 2] f32

  RopeTable(Device& device, std::int64_t positions, std::int64_t head_dim, double theta);
  // The same with the frequencies of `rope`, and cos and sin multiplied by its attention_factor, at
  // every position: then the scores of attention are multiplied by its square. [chapter 06]
  RopeTable(Device& device, std::int64_t positions, std::int64_t head_dim, const RopeConfig& rope);
};

}  // namespace tp

// Checkpoints that store layers with the same input as one matrix. [introduced in chapter 06]
//
// The rows of q, k and v, or of gate and up, then stand one part below the other:
//   model.layers.0.self_attn.qkv_proj.weight  [q_size + 2 * kv_size, hidden_size]
//   model.layers.0.mlp.gate_up_proj.weight    [2 * intermediate_size, hidden_size]
// A rank takes its rows of each part. A contiguous piece of the whole would have the right shape and
// the wrong rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/range.h"
#include "common/model/config.h"

namespace tp {

// Rows of a fused tensor.
struct FusedPart {
  std::string tensor;           // the fused one
  Range rows;                   // of this part in it
  std::int64_t fused_rows = 0;  // of all parts
};

// Where a checkpoint with fused layers has a tensor such as
// "model.layers.0.self_attn.k_proj.weight"; nothing if its layer is never fused.
std::optional<FusedPart> fused_part(const ModelConfig& config, std::string_view name);

}  // namespace tp

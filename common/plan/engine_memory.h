// What this project's engine will allocate on a rank, worked out beforehand. [introduced in
// chapter 08]
//
// The engine never asks this; it is compared with what the engine's device counted (device/memory.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/model/decoder.h"
#include "common/plan/layout.h"

namespace tp {

// Bytes by the tags of MemoryCounter.
using MemoryByTag = std::map<std::string, std::int64_t>;

// Results of one step, and the attention scores and tables that it needs besides.
struct StepMemory {
  std::int64_t activation_bytes = 0;
  std::int64_t rope_bytes = 0;
  std::int64_t workspace_bytes =
      0;  // when a sequence has had `longest_context` tokens in the cache

  static StepMemory of(const ModelConfig& config,
                       const DecoderLimits& limits,
                       int rank,
                       int tp_size,
                       std::int64_t longest_context);
};

// The tags "weights", "kv", "activations", "rope" and "workspace" of a planned card. The pool has
// `blocks` blocks of block_size tokens.
MemoryByTag engine_memory(const CardPlan& card,
                          const StepMemory& step,
                          std::int64_t blocks,
                          std::int64_t block_size);

}  // namespace tp

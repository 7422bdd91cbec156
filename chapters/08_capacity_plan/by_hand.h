// One card's bytes as one would add them up on paper, without the library's shards.
#pragma once

#include <cstdint>

#include "common/plan/layout.h"

namespace tp {

struct HandCard {
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_budget_bytes = 0;
};

HandCard card_by_hand(const PlanInput& input, const CardPlace& place);

// Numbers in all weights.
std::int64_t parameters_by_hand(const ModelConfig& config);

}  // namespace tp

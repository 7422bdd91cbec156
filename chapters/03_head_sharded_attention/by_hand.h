// Causal attention, its heads split over ranks by hand: plain matrices, no library.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/matrix.h"

namespace tp {

// The weights in the articles' layout, [in, out], without biases.
struct HandAttention {
  std::int64_t heads, kv_heads, head_dim;
  Matrix q;     // [hidden, heads * head_dim]
  Matrix k, v;  // [hidden, kv_heads * head_dim]
  Matrix o;     // [heads * head_dim, hidden]
};

// What each rank has in its hands.
struct HandResult {
  std::vector<Matrix> partials;  // rank r: its addend of y
  Matrix y;                      // their sum
};

// Shapes: x [tokens, hidden], one sequence from its beginning -> y [tokens, hidden].
HandResult attention_by_hand(const Matrix& x, const HandAttention& attention, int ranks);

}  // namespace tp

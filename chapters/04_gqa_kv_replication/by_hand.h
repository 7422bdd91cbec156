// Grouped-query attention (GQA), split over ranks by hand: plain matrices, no library.
#pragma once

#include "common/core/matrix.h"

namespace tp {

// The weights of q, k and v in the articles' layout, [in, out]. One head is head_dim columns.
struct HandAttention {
  Matrix q;     // [hidden, heads * head_dim]
  Matrix k, v;  // [hidden, kv_heads * head_dim]
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
};

// One head. Shapes: all [tokens, head_dim].
Matrix attend_by_hand(const Matrix& q, const Matrix& k, const Matrix& v);

// The outputs of the heads of all ranks, side by side.
// Shapes: x [tokens, hidden] -> [tokens, heads * head_dim].
Matrix gqa_by_hand(const Matrix& x, const HandAttention& attention, int ranks);

}  // namespace tp

// Attention and a decoder layer on one device, which knows nothing of ranks: what every split is
// compared with.
#pragma once

#include "layer_weights.h"

namespace tp {

// All heads. q and k are rotated.
struct OneDeviceAttention {
  Matrix q, k, v, attention;
  Matrix y;  // o_proj of attention, with its bias
};

// Shapes: x [kTokens, hidden], the rows of prefill() (sequences.h).
OneDeviceAttention attention_on_one_device(const LayerWeights& weights, const Matrix& x);

struct OneDeviceLayer {
  Matrix after_attention;  // x + attention(norm(x))
  Matrix output;           // after_attention + mlp(norm(after_attention))
};
OneDeviceLayer layer_on_one_device(const LayerWeights& weights, const Matrix& x);

}  // namespace tp

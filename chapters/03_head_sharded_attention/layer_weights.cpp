#include "layer_weights.h"

#include <cmath>

namespace tp {

StoredLinear make_linear(std::int64_t out, std::int64_t in, DType dtype, std::uint64_t seed) {
  const float factor = 2 / std::sqrt(static_cast<float>(in));
  return {to_tensor(scale(random_matrix(out, in, seed), factor), dtype),
          random_matrix(1, out, seed + 1)};
}

Matrix make_norm(std::int64_t hidden, std::uint64_t seed) {
  Matrix norm = scale(random_matrix(1, hidden, seed), 0.25f);
  for (float& value : norm.values) value += 1;
  return norm;
}

LayerWeights make_layer(const LayerSizes& s, DType dtype, std::uint64_t seed) {
  return {s,
          make_linear(s.q_size(), s.hidden, dtype, seed),
          make_linear(s.kv_size(), s.hidden, dtype, seed + 2),
          make_linear(s.kv_size(), s.hidden, dtype, seed + 4),
          make_linear(s.hidden, s.q_size(), dtype, seed + 6),
          make_linear(s.intermediate, s.hidden, dtype, seed + 8),
          make_linear(s.intermediate, s.hidden, dtype, seed + 10),
          make_linear(s.hidden, s.intermediate, dtype, seed + 12),
          make_norm(s.hidden, seed + 14),
          make_norm(s.hidden, seed + 15)};
}

}  // namespace tp

#include "by_hand.h"

#include <cmath>

namespace tp {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double gelu(double x) {
  return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
}

// [region by_hand]
HandResult mlp_by_hand(const Matrix& x, const HandMlp& mlp, int ranks) {
  HandResult result;
  for (int r = 0; r < ranks; ++r) {
    const Range mine{mlp.gate.cols * r / ranks, mlp.gate.cols * (r + 1) / ranks};
    // Column-parallel: the rank's own features of gate and up.
    const Matrix gate = multiply(x, mlp.gate.cols_in(mine));
    const Matrix up = multiply(x, mlp.up.cols_in(mine));
    // The activation works on each feature alone, so a rank needs no other rank's features.
    Matrix h(x.rows, mine.size());
    for (std::size_t i = 0; i < h.values.size(); ++i)
      h.values[i] = static_cast<float>(silu(gate.values[i]) * up.values[i]);
    // Row-parallel: down takes these features as they are.
    result.partials.push_back(multiply(h, mlp.down.rows_in(mine)));
  }
  result.y = result.partials[0];
  for (int r = 1; r < ranks; ++r)
    result.y = add(result.y, result.partials[static_cast<std::size_t>(r)]);
  return result;
}
// [end by_hand]

}  // namespace tp

// A gated MLP, split over ranks by hand: plain matrices, no library.
#pragma once

#include <vector>

#include "common/core/matrix.h"

namespace tp {

// x / (1 + e^-x), and x times the normal distribution function of x.
double silu(double x);
double gelu(double x);

// The weights of a gated MLP in the articles' layout, [in, out].
struct HandMlp {
  Matrix gate, up;  // [hidden, intermediate]
  Matrix down;      // [intermediate, hidden]
};

// What each rank has in its hands.
struct HandResult {
  std::vector<Matrix> partials;  // rank r: its addend of y
  Matrix y;                      // their sum
};

// Shapes: x [tokens, hidden] -> y [tokens, hidden].
HandResult mlp_by_hand(const Matrix& x, const HandMlp& mlp, int ranks);

}  // namespace tp

// Y = X W and Z = Y V, split over ranks by hand: plain matrices, no library.
#pragma once

#include <vector>

#include "common/core/matrix.h"

namespace tp {

// What each rank has in its hands. All matrices are in the articles' layout, W is [in, out].
struct ByHand {
  std::vector<Matrix> y_parts;   // rank r: X times its columns of W
  std::vector<Matrix> partials;  // rank r: y_parts[r] times its rows of V, a part of a sum
  Matrix y;                      // the parts of Y side by side
  Matrix z;                      // the partials added up
};

// Shapes: x [tokens, in], w [in, inner], v [inner, out].
ByHand split_by_hand(const Matrix& x, const Matrix& w, const Matrix& v, int ranks);

}  // namespace tp

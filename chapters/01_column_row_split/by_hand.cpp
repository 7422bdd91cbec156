#include "by_hand.h"

namespace tp {

// [region by_hand]
ByHand split_by_hand(const Matrix& x, const Matrix& w, const Matrix& v, int ranks) {
  ByHand hand;
  for (int r = 0; r < ranks; ++r) {
    // Column-parallel: every rank sees all of X and owns a range of W's columns.
    const Range mine{w.cols * r / ranks, w.cols * (r + 1) / ranks};
    hand.y_parts.push_back(multiply(x, w.cols_in(mine)));
    // Row-parallel: its part of Y meets the same range of V's rows. Nothing is sent in between.
    hand.partials.push_back(multiply(hand.y_parts.back(), v.rows_in(mine)));
  }
  // The parts of Y are different numbers of one row: side by side they are Y.
  hand.y = concat_columns(hand.y_parts);
  // The partials are addends of the same numbers: only their sum is Z.
  hand.z = hand.partials[0];
  for (int r = 1; r < ranks; ++r) hand.z = add(hand.z, hand.partials[static_cast<std::size_t>(r)]);
  return hand;
}
// [end by_hand]

}  // namespace tp

#include "by_hand.h"

#include <cmath>

#include "sequences.h"

namespace tp {

namespace {

// RoPE: features i and i + d/2 of the token at position p are turned by the angle p / theta^(2i/d).
Matrix rotate(const Matrix& head) {
  const std::int64_t half = head.cols / 2;
  Matrix turned = head;
  for (std::int64_t p = 0; p < head.rows; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(half);
      const double angle = static_cast<double>(p) / std::pow(kRopeTheta, exponent);
      const double low = head(p, i), high = head(p, i + half);
      turned(p, i) = static_cast<float>(low * std::cos(angle) - high * std::sin(angle));
      turned(p, i + half) = static_cast<float>(high * std::cos(angle) + low * std::sin(angle));
    }
  }
  return turned;
}

// Each row becomes the weights of the tokens up to its own; later tokens get 0. (Scores are small
// here, so exp needs no care.)
Matrix causal_softmax(const Matrix& scores) {
  Matrix weights(scores.rows, scores.cols);
  for (std::int64_t t = 0; t < scores.rows; ++t) {
    float sum = 0;
    for (std::int64_t s = 0; s <= t; ++s) sum += weights(t, s) = std::exp(scores(t, s));
    for (std::int64_t s = 0; s <= t; ++s) weights(t, s) /= sum;
  }
  return weights;
}

}  // namespace

// [region by_hand]
HandResult attention_by_hand(const Matrix& x, const HandAttention& a, int ranks) {
  const std::int64_t d = a.head_dim;
  const auto columns = [d](std::int64_t head) { return Range{head * d, (head + 1) * d}; };
  HandResult result;
  for (int r = 0; r < ranks; ++r) {
    const Range mine{a.heads * r / ranks, a.heads * (r + 1) / ranks};
    std::vector<Matrix> outputs;  // of this rank's heads
    for (std::int64_t head = mine.begin; head < mine.end; ++head) {
      // Column-parallel: the columns of this head, and of the KV head that it reads.
      const std::int64_t kv_head = head / (a.heads / a.kv_heads);
      const Matrix q = rotate(multiply(x, a.q.cols_in(columns(head))));
      const Matrix k = rotate(multiply(x, a.k.cols_in(columns(kv_head))));
      const Matrix v = multiply(x, a.v.cols_in(columns(kv_head)));
      // A head needs nothing of another head.
      const Matrix scores = scale(multiply(q, transpose(k)), 1 / std::sqrt(static_cast<float>(d)));
      outputs.push_back(multiply(causal_softmax(scores), v));
    }
    // Row-parallel: o_proj takes the features of these heads as they are.
    const Matrix rows = a.o.rows_in({mine.begin * d, mine.end * d});
    result.partials.push_back(multiply(concat_columns(outputs), rows));
  }
  result.y = result.partials[0];
  for (int r = 1; r < ranks; ++r)
    result.y = add(result.y, result.partials[static_cast<std::size_t>(r)]);
  return result;
}
// [end by_hand]

}  // namespace tp

#include "by_hand.h"

#include <cmath>

namespace tp {

// [region by_hand]
Matrix attend_by_hand(const Matrix& q, const Matrix& k, const Matrix& v) {
  Matrix y(q.rows, q.cols);
  for (std::int64_t i = 0; i < q.rows; ++i) {
    std::vector<double> sums(static_cast<std::size_t>(q.cols));
    double total = 0;
    for (std::int64_t j = 0; j <= i; ++j) {  // token i looks at the tokens 0 to i
      double score = 0;
      for (std::int64_t d = 0; d < q.cols; ++d) score += static_cast<double>(q(i, d)) * k(j, d);
      const double weight = std::exp(score / std::sqrt(static_cast<double>(q.cols)));
      total += weight;
      for (std::int64_t d = 0; d < q.cols; ++d)
        sums[static_cast<std::size_t>(d)] += weight * v(j, d);
    }
    for (std::int64_t d = 0; d < q.cols; ++d)
      y(i, d) = static_cast<float>(sums[static_cast<std::size_t>(d)] / total);
  }
  return y;
}

Matrix gqa_by_hand(const Matrix& x, const HandAttention& attention, int ranks) {
  const std::int64_t group = attention.heads / attention.kv_heads;  // query heads per KV head
  const std::int64_t width = attention.q.cols / attention.heads;    // head_dim
  const auto columns = [&](const Matrix& m, Range heads) {
    return m.cols_in({heads.begin * width, heads.end * width});
  };
  std::vector<Matrix> outputs;
  for (int r = 0; r < ranks; ++r) {
    const Range heads{attention.heads * r / ranks, attention.heads * (r + 1) / ranks};
    // From the KV head of the rank's first query head to the KV head of its last one.
    const Range kv{heads.begin / group, (heads.end - 1) / group + 1};
    const Matrix q = multiply(x, columns(attention.q, heads));
    // The rank's KV cache. A KV head that several ranks need, each of them makes for itself.
    const Matrix k = multiply(x, columns(attention.k, kv));
    const Matrix v = multiply(x, columns(attention.v, kv));
    for (std::int64_t h = heads.begin; h < heads.end; ++h) {
      const std::int64_t mine = h - heads.begin, read = h / group - kv.begin;  // local indices
      outputs.push_back(attend_by_hand(columns(q, {mine, mine + 1}), columns(k, {read, read + 1}),
                                       columns(v, {read, read + 1})));
    }
  }
  return concat_columns(outputs);
}
// [end by_hand]

}  // namespace tp

#include "by_hand.h"

#include <cmath>

namespace tp {

namespace {

// The query heads of a rank, and the KV heads that they read.
struct HandHeads {
  Range query, kv;
  std::int64_t group;
};
HandHeads heads_of(const HandSizes& sizes, int rank, int ranks) {
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const Range query{sizes.heads * rank / ranks, sizes.heads * (rank + 1) / ranks};
  return {query, {query.begin / group, (query.end - 1) / group + 1}, group};
}

}  // namespace

std::vector<HandPool> make_hand_pools(const HandSizes& sizes, int ranks) {
  std::vector<HandPool> pools;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t columns = heads_of(sizes, rank, ranks).kv.size() * sizes.head_dim;
    const Matrix empty(sizes.num_blocks * sizes.block_size, columns);
    pools.push_back({empty, empty});
  }
  return pools;
}

// [region by_hand]
Matrix attend_by_hand(const HandSequence& seq,
                      const HandSizes& sizes,
                      std::vector<HandPool>& pools) {
  const std::int64_t dim = sizes.head_dim;
  const auto slot_at = [&](std::int64_t position) {  // the same on every rank
    const std::int32_t block = seq.table[static_cast<std::size_t>(position / sizes.block_size)];
    return block * sizes.block_size + position % sizes.block_size;
  };
  Matrix out(seq.q.rows, seq.q.cols);
  for (int rank = 0; rank < static_cast<int>(pools.size()); ++rank) {
    HandPool& pool = pools[static_cast<std::size_t>(rank)];
    const HandHeads mine = heads_of(sizes, rank, static_cast<int>(pools.size()));
    for (std::int64_t t = 0; t < seq.q.rows; ++t) {
      // The token's key and value, of this rank's heads only, go into the token's slot.
      for (std::int64_t c = 0; c < pool.keys.cols; ++c) {
        pool.keys(slot_at(t), c) = seq.k(t, mine.kv.begin * dim + c);
        pool.values(slot_at(t), c) = seq.v(t, mine.kv.begin * dim + c);
      }
      // Each head looks back from slot to slot, wherever the table says that they are.
      for (std::int64_t head = mine.query.begin; head < mine.query.end; ++head) {
        const std::int64_t kv = (head / mine.group - mine.kv.begin) * dim;
        std::vector<double> weighted(static_cast<std::size_t>(dim));  // sum of weight * value
        double weights = 0;
        for (std::int64_t p = 0; p <= t; ++p) {
          double score = 0;
          for (std::int64_t i = 0; i < dim; ++i)
            score += seq.q(t, head * dim + i) * pool.keys(slot_at(p), kv + i);
          const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
          weights += weight;
          for (std::int64_t i = 0; i < dim; ++i)
            weighted[static_cast<std::size_t>(i)] += weight * pool.values(slot_at(p), kv + i);
        }
        for (std::int64_t i = 0; i < dim; ++i)
          out(t, head * dim + i) =
              static_cast<float>(weighted[static_cast<std::size_t>(i)] / weights);
      }
    }
  }
  return out;
}
// [end by_hand]

}  // namespace tp

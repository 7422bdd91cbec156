#include "common/parallel/gather_columns.h"

#include <vector>

#include "common/core/matrix.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

// Rank `root` gets the matrix, or with root -1 every rank. The others keep the zeros they had.
std::vector<RankOutput> gathered(const Matrix& m, const std::vector<Range>& ranges, int root) {
  Launch launch;
  launch.tp_size = static_cast<int>(ranges.size());
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    const Matrix shard = m.cols_in(ranges[static_cast<std::size_t>(ctx.rank)]);
    Tensor staging = to_tensor(random_matrix(1, gather_staging_shape(m.rows, ranges).elements(), 9),
                               DType::f32);  // contents do not matter
    TensorView staged = staging;
    staged.shape = gather_staging_shape(m.rows, ranges);
    staged.row_stride = staged.shape[1];
    Tensor whole = Tensor::on_host({m.rows, m.cols});
    if (root < 0)
      all_gather_columns(ctx, shard.view(), ranges, staged, whole, "logits");
    else
      gather_columns(ctx, shard.view(), ranges, root, staged, whole, "logits");
    out.keep("whole", whole);
  });
}

}  // namespace

TEST_CASE("column shards become the matrix on every rank") {
  for (const std::int64_t rows : {1, 2, 5}) {
    for (const std::int64_t columns : {1, 7, 48}) {
      const Matrix m = random_matrix(rows, columns, 1);
      for (const int tp_size : {1, 2, 3, 4, 8}) {
        INFO("[" << rows << ", " << columns << "] on " << tp_size << " ranks");
        for (const RankOutput& rank : gathered(m, shard_ranges(columns, tp_size), -1)) {
          CHECK(to_matrix(rank.tensor("whole")).values == m.values);
          CHECK(rank.ledger.total().calls == 1);
          CHECK(rank.ledger.total(Op::all_gather, "logits").calls == 1);
        }
      }
    }
  }
}

TEST_CASE("column shards become the matrix on the root only") {
  const Matrix m = random_matrix(5, 17, 1);
  for (const int tp_size : {1, 2, 3, 4, 8}) {
    for (const int root : {0, tp_size - 1}) {
      const auto ranks = gathered(m, shard_ranges(17, tp_size), root);
      for (int r = 0; r < tp_size; ++r) {
        const auto& rank = ranks[static_cast<std::size_t>(r)];
        CHECK(to_matrix(rank.tensor("whole")).values ==
              (r == root ? m.values : std::vector<float>(m.values.size(), 0)));
        CHECK(rank.ledger.total(Op::gather, "logits").calls == 1);
      }
    }
  }
}

TEST_CASE("shards may have any widths also none") {
  const Matrix m = random_matrix(3, 10, 1);
  for (const RankOutput& rank : gathered(m, {{0, 6}, {6, 6}, {6, 7}, {7, 10}}, -1)) {
    CHECK(to_matrix(rank.tensor("whole")).values == m.values);
    // Four parts of 3 rows, each padded to the widest shard, 6 columns.
    CHECK(rank.ledger.total(Op::all_gather).elements == 4 * 3 * 6);
  }
}

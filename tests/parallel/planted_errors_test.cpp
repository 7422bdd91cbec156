// Errors put into the results or the shards of single ranks: the comparison with one device must
// see each.
#include <cmath>
#include <limits>

#include "common/core/matrix.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/linear.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr std::int64_t kTokens = 3, kOut = 16;

struct Layer {
  Matrix x, weight, reference;
  Tolerance tolerance;
};

// A row-parallel layer whose shards are square, so that a transposed one has the right shape.
Layer make_layer(int tp_size) {
  const std::int64_t in = kOut * tp_size;
  Layer layer{random_matrix(kTokens, in, 1), random_matrix(kOut, in, 2), Matrix(kTokens, kOut), {}};
  make_cpu_device()->matmul(layer.x.view(), layer.weight.view(), layer.reference.view(),
                            SumBlocks::whole(in));
  const double magnitude = max_dot_magnitude(layer.x.view(), layer.weight.view());
  layer.tolerance = Accuracy().row_parallel(tp_size, Tolerance::reordered_sum(in, magnitude),
                                            layer.reference.view());
  return layer;
}

// Runs the layer; `spoil(ctx, layer, y, finished)` may change the shard before, and y after the
// sum.
template <class Spoil>
Comparison run_spoilt(int tp_size, const Spoil& spoil) {
  const Layer whole = make_layer(tp_size);
  Launch launch;
  launch.tp_size = tp_size;
  const auto ranks = run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    RowParallelLinear layer = RowParallelLinear::shard(ctx, {whole.weight.view()});
    Tensor y = ctx.device.allocate({kTokens, kOut}, DType::f32, "activations");
    spoil(ctx, layer, y.view(), false);
    layer.forward(ctx, whole.x.cols_in(layer.in_global).view(), y, "y");
    spoil(ctx, layer, y.view(), true);
    out.keep("y", y);
  });
  return compare_on_every_rank("y", ranks, "y", whole.reference.view(), whole.tolerance);
}

}  // namespace

TEST_CASE("an untouched layer passes on 2 and on 3 ranks") {
  for (const int tp_size : {2, 3})
    CHECK(run_spoilt(tp_size, [](const RankContext&, RowParallelLinear&, TensorView, bool) {
          }).passed);
  CHECK(make_layer(2).tolerance.bound == 0);
  CHECK(make_layer(3).tolerance.bound > 0);
}

TEST_CASE("a transposed shard on the first or the last rank is seen") {
  for (const int tp_size : {2, 3}) {
    for (const int wrong_rank : {0, tp_size - 1}) {
      const Comparison c = run_spoilt(tp_size, [&](const RankContext& ctx, RowParallelLinear& layer,
                                                   TensorView, bool finished) {
        if (finished || ctx.rank != wrong_rank) return;
        const Matrix turned = transpose(to_matrix(layer.weight_local));
        copy_host(turned.view(), layer.weight_local);
      });
      CHECK_FALSE(c.passed);
    }
  }
}

TEST_CASE("a wrong first or last element on the first or the last rank is seen") {
  for (const int tp_size : {2, 3}) {
    const double bound = make_layer(tp_size).tolerance.bound;
    for (const int wrong_rank : {0, tp_size - 1}) {
      for (const bool last : {false, true}) {
        const auto with_error = [&](const auto& change) {
          return run_spoilt(tp_size, [&](const RankContext& ctx, RowParallelLinear&, TensorView y,
                                         bool finished) {
            if (!finished || ctx.rank != wrong_rank) return;
            float& element = last ? y.row<float>(kTokens - 1)[kOut - 1] : y.row<float>(0)[0];
            element = change(element);
          });
        };
        INFO("tp " << tp_size << ", rank " << wrong_rank << ", last " << last);
        const auto ulp = [](float v) {
          return std::nextafter(v, std::numeric_limits<float>::infinity());
        };
        const auto tenfold = [&](float v) { return v + static_cast<float>(10 * bound); };
        const auto tenth = [&](float v) { return v + static_cast<float>(bound / 10); };
        CHECK_FALSE(
            with_error([](float) { return std::numeric_limits<float>::quiet_NaN(); }).passed);
        if (bound == 0) {
          CHECK_FALSE(with_error(ulp).passed);
        } else {
          CHECK_FALSE(with_error(tenfold).passed);
          CHECK(with_error(tenth).passed);
        }
        CHECK_THAT(with_error([](float v) { return v + 1; }).place,
                   ContainsSubstring("rank " + std::to_string(wrong_rank)));
      }
    }
  }
}

#include "common/parallel/linear.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "common/core/compare.h"
#include "common/core/matrix.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

struct Sizes {
  std::int64_t tokens, in, out;
};

// Pairwise different; most are multiples of nothing. A last rank may hold nothing at all.
const std::vector<Sizes> kSizes = {{5, 48, 80}, {3, 50, 7}, {2, 7, 19}, {4, 3, 5}, {1, 129, 33}};

Launch launch_of(int tp_size) {
  Launch launch;
  launch.tp_size = tp_size;
  return launch;
}

bool same_bits(ConstTensorView a, ConstTensorView b) {
  const Matrix left = to_matrix(a), right = to_matrix(b);
  return a.shape == b.shape && std::memcmp(left.values.data(), right.values.data(),
                                           left.values.size() * sizeof(float)) == 0;
}

// A linear layer and its input.
struct Problem {
  Matrix x;
  Tensor weight;  // [out, in]
  Tensor bias;    // [1, out]
  WholeLinear whole;

  Problem(const Matrix& input, const Matrix& w, const Matrix& b, DType dtype)
      : x(input),
        weight(to_tensor(w, dtype)),
        bias(to_tensor(b, dtype)),
        whole{weight.view(), bias.view(), {}} {}

  // What one device computes.
  Tensor one_device(std::int64_t unit = 1) const {
    const auto device = make_cpu_device();
    Tensor y = Tensor::on_host({x.rows, weight.shape()[0]});
    device->matmul(x.view(), weight, y, SumBlocks::whole(x.cols, unit));
    device->add_bias(y, bias);
    return y;
  }
};

Problem random_problem(const Sizes& s, DType dtype = DType::f32) {
  return {random_matrix(s.tokens, s.in, 1), random_matrix(s.out, s.in, 2),
          random_matrix(1, s.out, 3), dtype};
}

Problem integer_problem(const Sizes& s) {
  return {random_integers(s.tokens, s.in, 1), random_integers(s.out, s.in, 2),
          random_integers(1, s.out, 3), DType::f32};
}

// The outputs of a column-parallel layer on tp_size ranks, each put where its features belong.
Tensor column_parallel(const Problem& problem, int tp_size) {
  const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    const auto layer = ColumnParallelLinear::shard(ctx, problem.whole);
    Tensor y_local = Tensor::on_host({problem.x.rows, layer.out_local()});
    layer.forward(ctx, problem.x.view(), y_local);
    out.keep("y_local", y_local);
    Matrix begin(1, 1);
    begin(0, 0) = static_cast<float>(layer.out_global.begin);
    out.keep("begin", begin.view());
  });
  Tensor y = Tensor::on_host({problem.x.rows, problem.weight.shape()[0]});
  for (const RankOutput& rank : ranks) {
    const auto begin = static_cast<std::int64_t>(rank.tensor("begin").row<float>(0)[0]);
    const ConstTensorView y_local = rank.tensor("y_local");
    copy_host(y_local, y.view().columns_in({begin, begin + y_local.shape[1]}));
  }
  return y;
}

std::vector<RankOutput> row_parallel(const Problem& problem, int tp_size, std::int64_t unit = 1) {
  return run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    const auto layer = RowParallelLinear::shard(ctx, problem.whole, unit);
    Tensor y = Tensor::on_host({problem.x.rows, problem.weight.shape()[0]});
    layer.forward(ctx, problem.x.view().columns_in(layer.in_global), y, "y");
    out.keep("y", y);
  });
}

// The example of the article: x W + b with W [4, 2].
Problem worked_example() {
  const Matrix w(4, 2, {1, 0, 0, 1, 1, 1, 2, -1});
  return {Matrix(1, 4, {1, 2, 3, 4}), transpose(w), Matrix(1, 2, {10, -20}), DType::f32};
}

}  // namespace

TEST_CASE("column-parallel equals one device bit for bit on any number of ranks") {
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Problem problem = random_problem(sizes, dtype);
      const Tensor expected = problem.one_device();
      for (int tp_size = 1; tp_size <= 8; ++tp_size) {
        INFO("in " << sizes.in << ", out " << sizes.out << ", tp " << tp_size);
        CHECK(same_bits(column_parallel(problem, tp_size), expected));
      }
    }
  }
}

TEST_CASE("row-parallel equals one device bit for bit where tp divides the blocks") {
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Problem problem = random_problem(sizes, dtype);
      const Tensor expected = problem.one_device();
      for (const int tp_size : {1, 2, 4, 8}) {
        INFO("in " << sizes.in << ", out " << sizes.out << ", tp " << tp_size);
        for (const RankOutput& rank : row_parallel(problem, tp_size))
          CHECK(same_bits(rank.tensor("y"), expected));
      }
    }
  }
}

TEST_CASE("row-parallel stays within the tolerance elsewhere with the same bits on all ranks") {
  for (const Sizes& sizes : kSizes) {
    const Problem problem = random_problem(sizes);
    const Tensor expected = problem.one_device();
    const double magnitude = max_dot_magnitude(problem.x.view(), problem.weight);
    const Tolerance tolerance = Tolerance::reordered_sum(sizes.in, magnitude);
    for (const int tp_size : {3, 5, 6, 7}) {
      INFO("in " << sizes.in << ", out " << sizes.out << ", tp " << tp_size);
      const auto ranks = row_parallel(problem, tp_size);
      const Comparison c = compare_on_every_rank("y", ranks, "y", expected, tolerance);
      INFO(c.place);
      CHECK(c.passed);
      for (const RankOutput& rank : ranks) CHECK(same_bits(rank.tensor("y"), ranks[0].tensor("y")));
    }
  }
}

TEST_CASE("heads are split as wholes and still equal one device") {
  constexpr std::int64_t kHeadDim = 12;
  const Problem problem = random_problem({5, 8 * kHeadDim, 50});
  const Tensor expected = problem.one_device(kHeadDim);
  for (const int tp_size : {1, 2, 4, 8})
    for (const RankOutput& rank : row_parallel(problem, tp_size, kHeadDim))
      CHECK(same_bits(rank.tensor("y"), expected));
  // 10 heads on 4 ranks: 2, 3, 2 and 3 of them.
  const Problem uneven = random_problem({5, 10 * kHeadDim, 50});
  const auto ranks = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput& out) {
    const auto layer = RowParallelLinear::shard(ctx, uneven.whole, kHeadDim);
    out.keep("weight", layer.weight_local);
  });
  const std::vector<std::int64_t> columns = {24, 36, 24, 36};
  for (std::size_t r = 0; r < 4; ++r) CHECK(ranks[r].tensor("weight").shape[1] == columns[r]);
}

TEST_CASE("integers are exact on any number of ranks") {
  for (const Sizes& sizes : kSizes) {
    const Problem problem = integer_problem(sizes);
    const Matrix product =
        add_row(multiply(problem.x, transpose(to_matrix(problem.weight))), to_matrix(problem.bias));
    const Tensor expected = to_tensor(product, DType::f32);
    for (int tp_size = 1; tp_size <= 9; ++tp_size) {
      INFO("in " << sizes.in << ", out " << sizes.out << ", tp " << tp_size);
      CHECK(same_bits(column_parallel(problem, tp_size), expected));
      for (const RankOutput& rank : row_parallel(problem, tp_size))
        CHECK(same_bits(rank.tensor("y"), expected));
    }
  }
}

TEST_CASE("a row-parallel bias is added once") {
  const Problem problem = worked_example();
  for (const int tp_size : {1, 2, 4})
    for (const RankOutput& rank : row_parallel(problem, tp_size))
      CHECK(to_matrix(rank.tensor("y")).values == std::vector<float>{22, -19});
}

TEST_CASE("a partial sum has no bias yet") {
  const Problem problem = worked_example();
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const auto layer = RowParallelLinear::shard(ctx, problem.whole);
    Tensor y = Tensor::on_host({1, 2});
    const PartialSum partial = layer.partial(ctx, problem.x.view().columns_in(layer.in_global), y);
    out.keep("partial", partial.addend);
    out.keep("sum", sum_over_ranks(ctx, partial, "y"));
  });
  CHECK(to_matrix(ranks[0].tensor("partial")).values == std::vector<float>{1, 2});
  CHECK(to_matrix(ranks[1].tensor("partial")).values == std::vector<float>{11, -1});
  CHECK(to_matrix(ranks[1].tensor("sum")).values == std::vector<float>{12, 1});
}

TEST_CASE("a row-parallel layer makes one all_reduce and a column-parallel layer none") {
  const Problem problem = random_problem({5, 48, 80});
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const auto column = ColumnParallelLinear::shard(ctx, problem.whole);
    Tensor y_local = Tensor::on_host({5, column.out_local()});
    column.forward(ctx, problem.x.view(), y_local);
    const auto calls = static_cast<float>(ctx.comm.ledger().total().calls);
    out.keep("column calls", view_of(&calls, {1}));
    const auto row = RowParallelLinear::shard(ctx, problem.whole);
    Tensor y = Tensor::on_host({5, 80});
    row.forward(ctx, problem.x.view().columns_in(row.in_global), y, "down_proj");
  });
  for (const RankOutput& rank : ranks) {
    CHECK(rank.tensor("column calls").row<float>(0)[0] == 0);
    CHECK(rank.ledger.total().calls == 1);
    CHECK(rank.ledger.total(Op::all_reduce, "down_proj").payload_bytes == 5 * 80 * 4);
  }
}

TEST_CASE("a rank allocates and reads the bytes of its shard and nothing else") {
  const Problem problem = random_problem({5, 50, 80});
  const auto column = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput&) {
    ColumnParallelLinear::shard(ctx, problem.whole);
  });
  const auto row = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput&) {
    RowParallelLinear::shard(ctx, problem.whole);
  });
  const auto rounded = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput&) {
    WholeLinear whole = problem.whole;
    whole.store_as = DType::bf16;
    ColumnParallelLinear::shard(ctx, whole);
  });
  const auto fused = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput&) {
    ColumnParallelLinear::shard_fused(ctx, {problem.whole, problem.whole});
  });
  const std::vector<std::int64_t> columns = {12, 13, 12, 13};  // of 50
  for (std::size_t r = 0; r < 4; ++r) {
    const std::int64_t column_bytes = (20 * 50 + 20) * 4, row_bytes = (80 * columns[r] + 80) * 4;
    CHECK(column[r].memory.use("weights").peak_bytes == column_bytes);
    CHECK(column[r].memory.uploaded_bytes() == column_bytes);
    CHECK(row[r].memory.use("weights").peak_bytes == row_bytes);
    CHECK(row[r].memory.uploaded_bytes() == row_bytes);
    CHECK(rounded[r].memory.use("weights").peak_bytes == column_bytes / 2);
    CHECK(rounded[r].memory.uploaded_bytes() == column_bytes);  // as it lies in the file
    CHECK(fused[r].memory.use("weights").peak_bytes == 2 * column_bytes);
    CHECK(fused[r].memory.uploaded_bytes() == 2 * column_bytes);
    CHECK(column[r].memory.uses().size() == 1);         // nothing under another tag
    CHECK(column[r].memory.use("weights").bytes == 0);  // given back with the layer
  }
}

TEST_CASE("parts of different dtypes are fused without rounding any of them") {
  const Matrix first = random_matrix(8, 6, 1), second = random_matrix(8, 6, 2);
  const Tensor rounded = to_tensor(first, DType::bf16), exact = to_tensor(second, DType::f32);
  for (const bool exact_first : {false, true}) {
    const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
      const WholeLinear a{rounded.view()}, b{exact.view()};
      const auto layer = ColumnParallelLinear::shard_fused(
          ctx, exact_first ? std::vector{b, a} : std::vector{a, b});
      out.keep("weight", layer.weight_local);
    });
    const ConstTensorView weight = ranks[1].tensor("weight");
    REQUIRE(weight.dtype == DType::f32);
    const std::int64_t place = exact_first ? 0 : 4;  // of the f32 part's row 5
    CHECK(weight.row<float>(place + 1)[3] == second(5, 3));
    CHECK(weight.row<float>(4 - place + 1)[3] == to_float(to_bf16(first(5, 3))));
  }
}

TEST_CASE("a shard is a copy of the whole layer at the time of loading") {
  Problem problem = random_problem({5, 48, 80});
  const Tensor expected = problem.one_device();
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const auto layer = RowParallelLinear::shard(ctx, problem.whole);
    ctx.group.barrier();
    if (ctx.rank == 0) {
      std::memset(problem.weight.view().data, 0, static_cast<std::size_t>(80 * 48 * 4));
      std::memset(problem.bias.view().data, 0, static_cast<std::size_t>(80 * 4));
    }
    ctx.group.barrier();
    Tensor y = Tensor::on_host({5, 80});
    layer.forward(ctx, problem.x.view().columns_in(layer.in_global), y, "y");
    out.keep("y", y);
  });
  for (const RankOutput& rank : ranks) CHECK(same_bits(rank.tensor("y"), expected));
}

TEST_CASE("a stored f16 weight is widened and an asked bf16 is rounded") {
  const std::vector<f16> stored = {{0x3c00}, {0xc000}, {0x3800}, {0x5c04}};  // 1, -2, 0.5, 257
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    WholeLinear whole{view_of(stored.data(), {2, 2}), {}, {}};
    const auto wide = ColumnParallelLinear::shard(ctx, whole);
    out.keep("wide", wide.weight_local);
    whole.store_as = DType::bf16;
    const auto narrow = ColumnParallelLinear::shard(ctx, whole);
    out.keep("narrow", narrow.weight_local);
  });
  CHECK(ranks[1].tensor("wide").dtype == DType::f32);
  CHECK(to_matrix(ranks[0].tensor("wide")).values == std::vector<float>{1, -2});
  CHECK(to_matrix(ranks[1].tensor("wide")).values == std::vector<float>{0.5, 257});
  CHECK(ranks[1].tensor("narrow").dtype == DType::bf16);
  CHECK(to_matrix(ranks[1].tensor("narrow")).values == std::vector<float>{0.5, 256});
}

// silu(1) * 1 + silu(2) * -1 = -1.030536 and silu(3) * 2 + silu(4) * 0.5 = 7.679472. Had the fused
// matrix of gate and up been cut in contiguous halves, the sum would be 10.567199.
TEST_CASE("a fused layer holds this rank's rows of every part") {
  const Matrix gate(4, 1, {1, 2, 3, 4}), up(4, 1, {1, -1, 2, 0.5f}), down(1, 4, {1, 1, 1, 1});
  const Matrix gate_bias(1, 4, {10, 20, 30, 40}), up_bias(1, 4, {50, 60, 70, 80});
  const Matrix x(1, 1, {1});
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const auto fused =
        ColumnParallelLinear::shard_fused(ctx, {{gate.view(), {}, {}}, {up.view(), {}, {}}});
    const auto with_bias = ColumnParallelLinear::shard_fused(
        ctx, {{gate.view(), gate_bias.view(), {}}, {up.view(), up_bias.view(), {}}});
    const auto row = RowParallelLinear::shard(ctx, {down.view(), {}, {}});
    Tensor gate_up = Tensor::on_host({1, 4}), act = Tensor::on_host({1, 2}),
           y = Tensor::on_host({1, 1});
    fused.forward(ctx, x.view(), gate_up);
    ctx.device.gated_activation(gate_up.view().columns_in({0, 2}),
                                gate_up.view().columns_in({2, 4}), act, Activation::silu);
    out.keep("rows", fused.weight_local);
    out.keep("bias", with_bias.bias_local);
    const PartialSum partial = row.partial(ctx, act, y);
    out.keep("partial", partial.addend);
    out.keep("sum", sum_over_ranks(ctx, partial, "down_proj"));
  });
  using Values = std::vector<float>;
  CHECK(to_matrix(ranks[0].tensor("rows")).values == Values{1, 2, 1, -1});  // rows 0, 1, 4, 5
  CHECK(to_matrix(ranks[1].tensor("rows")).values == Values{3, 4, 2, 0.5f});
  CHECK(to_matrix(ranks[0].tensor("bias")).values == Values{10, 20, 50, 60});
  CHECK(to_matrix(ranks[1].tensor("bias")).values == Values{30, 40, 70, 80});
  const auto value = [&](std::size_t rank, const char* name) {
    return static_cast<double>(ranks[rank].tensor(name).row<float>(0)[0]);
  };
  CHECK(std::abs(value(0, "partial") - -1.030536) < 2e-6);
  CHECK(std::abs(value(1, "partial") - 7.679472) < 2e-6);
  CHECK(std::abs(value(0, "sum") - 6.648937) < 2e-6);
  CHECK(std::abs(value(1, "sum") - 6.648937) < 2e-6);
}

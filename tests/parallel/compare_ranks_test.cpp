#include "common/parallel/compare_ranks.h"

#include <limits>
#include <vector>

#include "common/core/error.h"
#include "common/core/matrix.h"
#include "tests/catch.h"

using namespace tp;

namespace {

// Three ranks that hold the same matrix.
struct Ranks {
  Matrix reference = random_matrix(2, 3, 1);
  std::vector<Matrix> held{3, reference};

  Comparison compare(const Tolerance& tolerance) const {
    std::vector<RankOutput> ranks(held.size());
    for (std::size_t r = 0; r < held.size(); ++r) ranks[r].keep("y", held[r].view());
    return compare_on_every_rank("layer output", ranks, "y", reference.view(), tolerance);
  }
};

}  // namespace

TEST_CASE("ranks that all agree pass") {
  const Comparison c = Ranks().compare(Tolerance::exact());
  CHECK(c.passed);
  CHECK(c.max_difference == 0);
  CHECK(c.name == "layer output");
}

TEST_CASE("an error on one rank only is found and the rank named") {
  for (std::size_t wrong = 0; wrong < 3; ++wrong) {
    Ranks ranks;
    ranks.held[wrong](1, 2) += 0.5f;
    const Comparison c = ranks.compare(Tolerance{0.25, "test"});
    CHECK_FALSE(c.passed);
    CHECK_THAT(c.place, ContainsSubstring("rank " + std::to_string(wrong) + " [1, 2]"));
  }
}

TEST_CASE("a NaN on the last rank only is found") {
  Ranks ranks;
  ranks.held[0](0, 0) += 0.125f;  // allowed, and the largest difference that is a number
  ranks.held[2](1, 2) = std::numeric_limits<float>::quiet_NaN();
  const Comparison c = ranks.compare(Tolerance{0.25, "test"});
  CHECK_FALSE(c.passed);
  CHECK_THAT(c.place, ContainsSubstring("rank 2"));
}

TEST_CASE("a wrong shape on the last rank only is found") {
  Ranks ranks;
  ranks.held[2] = Matrix(2, 2);
  const Comparison c = ranks.compare(Tolerance{1e9, "test"});
  CHECK_FALSE(c.passed);
  CHECK_THAT(c.place, ContainsSubstring("rank 2 shape [2, 2]"));
}

TEST_CASE("among passing ranks the largest difference is shown") {
  Ranks ranks;
  ranks.reference(0, 1) = 1;
  ranks.held = {3, ranks.reference};
  ranks.held[1](0, 1) += 0.125f;
  ranks.held[2](0, 1) -= 0.0625f;
  const Comparison c = ranks.compare(Tolerance{0.25, "test"});
  CHECK(c.passed);
  CHECK(c.max_difference == 0.125);
  CHECK_THAT(c.place, ContainsSubstring("rank 1"));
}

TEST_CASE("column shards are compared with the columns of their rank") {
  const Matrix whole = random_matrix(2, 5, 1);
  const std::vector<Range> columns = {{0, 2}, {2, 5}, {1, 2}};  // of three ranks, also twice
  std::vector<RankOutput> ranks(3);
  for (std::size_t r = 0; r < 3; ++r) ranks[r].keep("k", whole.cols_in(columns[r]).view());
  const auto run = [&] {
    return compare_column_shards("keys", ranks, "k", whole.view(), columns, Tolerance::exact());
  };
  CHECK(run().passed);
  CHECK(run().shape == "[2, 5]");
  for (std::size_t wrong = 0; wrong < 3; ++wrong) {
    Matrix part = whole.cols_in(columns[wrong]);
    part(1, part.cols - 1) += 0.5f;
    ranks[wrong].keep("k", part.view());
    CHECK_FALSE(run().passed);
    CHECK_THAT(run().place, ContainsSubstring("rank " + std::to_string(wrong)));
    ranks[wrong].keep("k", whole.cols_in(columns[wrong]).view());
  }
  ranks[2].keep("k", whole.cols_in({2, 3}).view());  // the column of another rank
  CHECK_FALSE(run().passed);
}

TEST_CASE("a tensor that a rank did not keep is an error that names it") {
  const std::vector<RankOutput> ranks(2);
  const Matrix reference(1, 1);
  CHECK_THROWS_WITH(
      compare_on_every_rank("y", ranks, "no such tensor", reference.view(), Tolerance::exact()),
      ContainsSubstring("no such tensor"));
}

TEST_CASE("sums are compared exactly where the number of ranks divides the blocks") {
  const Tolerance reordered{0.5, "test"};
  const Matrix reference(1, 2, {-1, 1});  // the standard deviation is 1
  const Accuracy cpu = Accuracy::of({.device = "cpu", .kv_dtype = "f32"}, DType::bf16, 12);
  for (const int tp_size : {1, 2, 4, 8})
    CHECK(cpu.row_parallel(tp_size, reordered, reference.view()).bound == 0);
  for (const int tp_size : {3, 5, 6, 7, 16})
    CHECK(cpu.row_parallel(tp_size, reordered, reference.view()).bound == 0.5);
  CHECK(cpu.same_steps(reference.view()).bound == 0);
}

TEST_CASE("a GPU is compared with a tolerance that depends on what is rounded") {
  const Matrix reference(1, 2, {-1, 1});
  const auto bound = [&](const std::string& kv_dtype, DType weights) {
    const Accuracy gpu = Accuracy::of({.device = "cuda", .kv_dtype = kv_dtype}, weights, 12);
    const double same = gpu.same_steps(reference.view()).bound;
    CHECK(gpu.row_parallel(2, {0.5, "test"}, reference.view()).bound == same);
    return same;
  };
  CHECK(bound("", DType::f32) == 2e-5);
  CHECK(bound("", DType::bf16) == 15 * 0x1p-9);  // 5 * 1.5 * sqrt(12 / 3) roundings
  CHECK(bound("", DType::f16) == 15 * 0x1p-12);
  CHECK(bound("bf16", DType::f32) == 15 * 0x1p-9);
  CHECK(bound("f32", DType::f32) == 2e-5);
}

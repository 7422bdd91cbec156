// The order of sums: what the definition says, and what follows from it.
#include <cmath>
#include <string>

#include "common/core/error.h"
#include "common/device/reference_ops.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

constexpr float kBig = 16777216.0f;  // 2^24: adding 1 to it changes nothing

Matrix matmul_on_cpu(const Matrix& x, ConstTensorView w, const SumBlocks& blocks) {
  Matrix y(x.rows, w.rows());
  make_cpu_device()->matmul(x.view(), w, y.view(), blocks);
  return y;
}

// Adds the ranks first, ..., first + count - 1 as a tree, like all_reduce.
Matrix sum_of_ranks(const std::vector<Matrix>& ranks, std::size_t first, std::size_t count) {
  if (count == 1) return ranks[first];
  return add(sum_of_ranks(ranks, first, count / 2),
             sum_of_ranks(ranks, first + count / 2, count - count / 2));
}

}  // namespace

TEST_CASE("dot keeps 16 running sums") {
  // Sum 0 gets 2^24 + 1 + 1 = 2^24, sum 1 gets 1 + 1. One running sum would lose all the ones.
  Matrix a(1, 33), ones(1, 33);
  for (float& value : ones.values) value = 1;
  a(0, 0) = kBig;
  for (const std::int64_t k : {1, 16, 17, 32}) a(0, k) = 1;
  REQUIRE(reference::dot(a.values.data(), ones.values.data(), 33) == kBig + 2);
}

TEST_CASE("dot rounds a product and a sum together once") {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last term is lost if the product is rounded first.
  Matrix a(1, 17), b(1, 17);
  a(0, 0) = -(1 + 0x1p-11f);
  b(0, 0) = 1;
  a(0, 16) = b(0, 16) = 1 + 0x1p-12f;
  REQUIRE(reference::dot(a.values.data(), b.values.data(), 17) == 0x1p-24f);
}

TEST_CASE("matmul adds 8 blocks as a binary tree") {
  // ((2^24 + 1) + (1 + 1)) + ((1 + 1) + (1 + 1)) = (2^24 + 2) + 4; one after the other gives 2^24.
  Matrix x(1, 8), w(1, 8);
  for (float& value : x.values) value = 1;
  for (float& value : w.values) value = 1;
  x(0, 0) = kBig;
  Matrix y(1, 1);
  reference::matmul(x.view(), w.view(), y.view(), SumBlocks::whole(8));
  REQUIRE(y(0, 0) == kBig + 6);
  REQUIRE(matmul_on_cpu(x, w.view(), SumBlocks::whole(8))(0, 0) == kBig + 6);
}

TEST_CASE("sum blocks are cut in whole units and cover the features") {
  REQUIRE(SumBlocks::whole(256).count == 8);
  REQUIRE(SumBlocks::whole(256).edge ==
          std::array<std::int64_t, 9>{0, 32, 64, 96, 128, 160, 192, 224, 256});
  // 12 features in 6 heads of 2: blocks of 0 or 1 head.
  REQUIRE(SumBlocks::whole(12, 2).edge == std::array<std::int64_t, 9>{0, 0, 2, 4, 6, 6, 8, 10, 12});
  // Rank 1 of 2 has the blocks 4 to 7, its edges count from feature 6.
  const SumBlocks upper = SumBlocks::of_rank(12, 1, 2, 2);
  REQUIRE(upper.count == 4);
  REQUIRE(upper.edge[0] == 0);
  REQUIRE(upper.edge[4] == 6);
  // Rank 1 of 3 has the features 4 to 7 of 12 and the parts of the blocks in there.
  const SumBlocks third = SumBlocks::of_rank(12, 1, 3);
  REQUIRE(third.edge[static_cast<std::size_t>(third.count)] == 4);
  REQUIRE_THROWS_WITH(SumBlocks::whole(10, 4),
                      ContainsSubstring("10 input features are not a multiple of 4"));
}

TEST_CASE("the sums of 2, 4 and 8 ranks have the bits of one device") {
  const int tp_size = GENERATE(2, 4, 8);
  const std::int64_t features = GENERATE(3, 8, 50, 96, 256, 704);
  const Matrix x = random_matrix(5, features, 1), w = random_matrix(31, features, 2);
  std::vector<Matrix> ranks;
  for (int rank = 0; rank < tp_size; ++rank) {
    const Range shard = even_split(features, rank, tp_size);
    ranks.push_back(matmul_on_cpu(x.cols_in(shard), w.view().columns_in(shard),
                                  SumBlocks::of_rank(features, rank, tp_size)));
  }
  const Matrix whole = matmul_on_cpu(x, w.view(), SumBlocks::whole(features));
  REQUIRE(same_bits(sum_of_ranks(ranks, 0, ranks.size()).view(), whole.view()));
}

TEST_CASE("an output does not depend on how many tokens or features are computed with it") {
  const std::int64_t features = GENERATE(50, 256, 704);
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Matrix x = random_matrix(70, features, 1);
  const Tensor w = to_tensor(random_matrix(130, features, 2), dtype);
  const SumBlocks blocks = SumBlocks::whole(features);
  const Matrix all = matmul_on_cpu(x, w, blocks);
  for (const std::int64_t tokens : {1, 2, 3, 5, 17}) {
    for (const std::int64_t outputs : {1, 2, 3, 31, 64, 65}) {
      const Range rows{70 - tokens, 70}, cols{130 - outputs, 130};
      const Matrix part = matmul_on_cpu(x.rows_in(rows), w.view().rows_in(cols), blocks);
      INFO(tokens << " tokens, " << outputs << " outputs");
      REQUIRE(same_bits(part.view(), all.view().rows_in(rows).columns_in(cols)));
    }
  }
}

TEST_CASE("a shard without input features gives zeros") {
  const SumBlocks none = SumBlocks::of_rank(2, 0, 3);
  REQUIRE(none.count == 0);
  Matrix x(2, 1), w(3, 1);
  Matrix y = random_matrix(2, 3, 1);
  make_cpu_device()->matmul(x.view().columns_in({0, 0}), w.view().columns_in({0, 0}), y.view(),
                            none);
  REQUIRE(y.values == std::vector<float>(6, 0.0f));
}

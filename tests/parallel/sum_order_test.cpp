// The order of sums over input features: blocks, their tree, and how ranks share them.
#include <vector>

#include "common/comm/tree_sum.h"
#include "common/core/error.h"
#include "common/device/sum_blocks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

std::vector<std::int64_t> edges_of(const SumBlocks& blocks, std::int64_t begin = 0) {
  std::vector<std::int64_t> edges;
  for (int b = 0; b <= blocks.count; ++b)
    edges.push_back(begin + blocks.edge[static_cast<std::size_t>(b)]);
  return edges;
}

}  // namespace

TEST_CASE("an even split covers everything once and in order") {
  for (std::int64_t total = 0; total <= 600; ++total) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::int64_t end = 0;
      bool right = true;
      for (int part = 0; part < parts; ++part) {
        const Range range = even_split(total, part, parts);
        right = right && range.begin == end && range.size() >= total / parts &&
                range.size() <= total / parts + 1;
        end = range.end;
      }
      if (!right || end != total) FAIL(total << " in " << parts << " parts");
    }
  }
}

TEST_CASE("edges of ranks are edges of blocks where tp divides 8") {
  for (std::int64_t size = 1; size <= 600; ++size) {
    const std::vector<std::int64_t> all = edges_of(SumBlocks::whole(size));
    REQUIRE(all.size() == 9);
    REQUIRE(all.back() == size);
    for (const int tp_size : {1, 2, 4, 8}) {
      const auto per_rank = static_cast<std::ptrdiff_t>(8 / tp_size);
      for (int rank = 0; rank < tp_size; ++rank) {
        const Range shard = even_split(size, rank, tp_size);
        const auto mine = edges_of(SumBlocks::of_rank(size, rank, tp_size), shard.begin);
        const auto first = all.begin() + rank * per_rank;
        if (mine != std::vector<std::int64_t>(first, first + per_rank + 1))
          FAIL("size " << size << ", rank " << rank << " of " << tp_size);
      }
    }
  }
}

TEST_CASE("local blocks cover exactly the shard and never cross an edge of a block") {
  for (std::int64_t units = 1; units <= 600; ++units) {
    const std::int64_t unit = units % 3 + 1, size = units * unit;
    const std::vector<std::int64_t> all = edges_of(SumBlocks::whole(size, unit));
    for (int tp_size = 1; tp_size <= 9; ++tp_size) {
      for (int rank = 0; rank < tp_size; ++rank) {
        const Range shard = even_split(units, rank, tp_size);
        const auto mine =
            edges_of(SumBlocks::of_rank(size, rank, tp_size, unit), shard.begin * unit);
        bool right = mine.front() == shard.begin * unit && mine.back() == shard.end * unit;
        for (std::size_t b = 1; b < mine.size(); ++b) {
          right = right && mine[b - 1] <= mine[b] && mine[b] % unit == 0;
          for (const std::int64_t edge : all)
            right = right && !(mine[b - 1] < edge && edge < mine[b]);
        }
        if (!right) FAIL(units << " units of " << unit << ", rank " << rank << " of " << tp_size);
      }
    }
  }
}

TEST_CASE("features that are no multiple of the unit are refused") {
  CHECK_THROWS_WITH(SumBlocks::whole(50, 12), ContainsSubstring("50") && ContainsSubstring("12"));
  CHECK_THROWS_AS(SumBlocks::of_rank(50, 0, 2, 0), Error);
}

// 2^24 + 1 is no float and becomes 2^24, so that the order decides how many of the ones remain.
TEST_CASE("tree_sum adds halves") {
  constexpr float kBig = 0x1p24f;
  const auto sum_of = [](const std::vector<float>& values) {
    float sums[2];
    const auto value = [&](int i, float* out) {
      out[0] = values[static_cast<std::size_t>(i)];
      out[1] = -values[static_cast<std::size_t>(i)];
    };
    tree_sum(0, static_cast<int>(values.size()), value, sums, 2);
    CHECK(sums[1] == -sums[0]);
    return sums[0];
  };
  CHECK(sum_of({5}) == 5);
  CHECK(sum_of({kBig, 1, 1}) == kBig + 2);        // kBig + (1 + 1)
  CHECK(sum_of({1, 1, kBig}) == kBig);            // 1 + (1 + kBig)
  CHECK(sum_of({kBig, 1, 1, 1}) == kBig + 2);     // (kBig + 1) + (1 + 1)
  CHECK(sum_of({kBig, 1, 1, 1, 1}) == kBig + 4);  // (kBig + 1) + (1 + (1 + 1)), and 3 is a tie
  CHECK(sum_of({1, 1, 1, 1, kBig, 1, 1, 1}) == kBig + 6);
}

TEST_CASE("the sums of ranks are subtrees of the sum of blocks") {
  const auto value = [](int i, float* out) { *out = 1.0f / static_cast<float>(3 * i + 1); };
  float whole = 0;
  tree_sum(0, 8, value, &whole, 1);
  for (const int tp_size : {1, 2, 4, 8}) {
    const int per_rank = 8 / tp_size;
    float sum = 0;
    tree_sum(
        0, tp_size,
        [&](int rank, float* out) { tree_sum(rank * per_rank, per_rank, value, out, 1); }, &sum, 1);
    CHECK(sum == whole);
  }
}

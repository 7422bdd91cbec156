#include "common/engine/kv_pool.h"

#include <array>

#include "common/core/error.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
// Keys and values of 32 layers, 4 KV heads of 128 on this rank, bf16, 16 tokens.
constexpr std::int64_t kBlockBytes = 2 * 32 * 4 * 128 * 2 * 16;

// What the ranks with these budgets agree on, as the last of them sees it.
KvPoolSize agree(const std::vector<KvBudget>& budgets) {
  Launch launch;
  launch.tp_size = static_cast<int>(budgets.size());
  std::vector<KvPoolSize> sizes(budgets.size());
  run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    const auto rank = static_cast<std::size_t>(ctx.rank);
    sizes[rank] = agree_on_pool_size(ctx, budgets[rank]);
  });
  for (const KvPoolSize& size : sizes) {
    CHECK(size.num_blocks == sizes[0].num_blocks);
    CHECK(size.blocks_of_rank == sizes[0].blocks_of_rank);
    CHECK(size.limiting_rank == sizes[0].limiting_rank);
  }
  return sizes.back();
}

}  // namespace

TEST_CASE("the rank with the least room decides for all") {
  CHECK(kBlockBytes == 1'048'576);
  const KvPoolSize size = agree({{40 * kGiB, kBlockBytes}, {20 * kGiB, kBlockBytes}});
  CHECK(size.num_blocks == 20480);
  CHECK(size.blocks_of_rank == std::vector<std::int64_t>{40960, 20480});
  CHECK(size.limiting_rank == 1);
  CHECK(size.to_string() ==
        "20480 blocks on every rank: rank 1 limits, others have room for up to 40960");
}

TEST_CASE("ranks with the same room are not limited by one of them") {
  const KvPoolSize size = agree({{100, 10}, {109, 10}, {100, 10}});
  CHECK(size.num_blocks == 10);
  CHECK_FALSE(size.limiting_rank.has_value());
  CHECK(size.to_string() == "10 blocks on every rank");
  CHECK_FALSE(agree({{100, 10}}).limiting_rank.has_value());
}

TEST_CASE("a rank with more heads has larger blocks and so fewer of them") {
  const KvPoolSize size = agree({{1000, 100}, {1000, 150}, {1000, 150}});
  CHECK(size.num_blocks == 6);
  CHECK(size.blocks_of_rank == std::vector<std::int64_t>{10, 6, 6});
  CHECK(size.limiting_rank == 1);
}

TEST_CASE("every rank without room for one block is named") {
  const std::array<KvBudget, 3> budgets{KvBudget{99, 100}, KvBudget{100, 100}, KvBudget{-5, 100}};
  const std::string first =
      "rank 0 has 99 bytes for its KV cache, which is no room for one block of 100 bytes";
  CHECK_THROWS_WITH(common_pool_size(budgets),
                    first +
                        "\nrank 2 has -5 bytes for its KV cache, which is no room for one "
                        "block of 100 bytes\ngive the KV cache more memory, use smaller blocks, or "
                        "split the model over more ranks");
  CHECK_THROWS_WITH(agree({{99, 100}, {500, 100}}), ContainsSubstring(first));
  CHECK_THROWS_WITH(agree({{500, 100}, {500, 0}}), ContainsSubstring("one block of 0 bytes"));
}

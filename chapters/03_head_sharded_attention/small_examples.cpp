#include "small_examples.h"

#include <fmt/format.h>

#include "common/core/matrix.h"
#include "common/device/device.h"
#include "common/parallel/shards.h"

namespace tp {

void show_article_example(Report& report) {
  constexpr std::int64_t kHidden = 4096, kHeads = 32, kHeadDim = 128, kBytes = 2;  // bf16
  constexpr int kRanks = 4;
  const std::int64_t whole_bytes = kHeads * kHeadDim * kHidden * kBytes;
  report.section("The article's example: 32 heads on 4 ranks");
  report.line(
      "hidden 4096, 32 query and 32 KV heads of 128, weights bf16: q, k, v and o_proj are each "
      "[4096, 4096]");
  Table table{
      "article_example",
      {"rank", "heads", "rows of q, k, v", "q, k, v", "columns of o", "o_proj", "bytes of each"},
      {}};
  const char* const article[kRanks] = {"0-7", "8-15", "16-23", "24-31"};
  for (int rank = 0; rank < kRanks; ++rank) {
    const Range heads = head_shard(kHeads, kHeads, rank, kRanks).query;
    const Range features{heads.begin * kHeadDim, heads.end * kHeadDim};
    table.rows.push_back({std::to_string(rank), cell_of(heads), cell_of(features),
                          Shape{features.size(), kHidden}.to_string(), cell_of(features),
                          Shape{kHidden, features.size()}.to_string(),
                          std::to_string(features.size() * kHidden * kBytes)});
  }
  report.table(table);
  for (int rank = 0; rank < kRanks; ++rank) {
    report.expect(fmt::format("heads of rank {}", rank),
                  table.rows[static_cast<std::size_t>(rank)][1], article[rank]);
  }
  report.expect(
      fmt::format("bytes of q, k, v and o_proj on a rank, each a quarter of {}", whole_bytes),
      table.rows[0].back(), std::to_string(whole_bytes / 4));
}

namespace {

// Which heads each of tp_size ranks gets with --uneven.
std::vector<std::string> uneven_row(const ShardedSizes& sizes, int tp_size) {
  std::vector<std::string> query, kv;
  std::int64_t held = 0;  // KV heads, counted on every rank
  for (int rank = 0; rank < tp_size; ++rank) {
    const HeadShard shard = head_shard(sizes.heads, sizes.kv_heads, rank, tp_size);
    query.push_back(std::to_string(shard.query.size()));
    kv.push_back(std::to_string(shard.kv.size()));
    held += shard.kv.size();
  }
  return {std::to_string(tp_size), cell_of(query), cell_of(kv), std::to_string(held),
          fmt::format("{:.1f} %", imbalance_percent(sizes.heads, tp_size))};
}

}  // namespace

void show_usable_tp_sizes(Report& report) {
  const ShardedSizes sizes{.heads = 64, .kv_heads = 8, .intermediate = 28672};  // Llama-3-70B
  report.section("Which tp sizes 64 query and 8 KV heads allow");
  report.expect("usable with an intermediate size of 28672",
                fmt::format("{}", fmt::join(usable_tp_sizes(sizes), ", ")),
                "1, 2, 4, 8, 16, 32, 64");
  for (const int tp_size : {3, 5, 6}) {
    report.line(fmt::format("tp {}:", tp_size));
    for (const std::string& problem : tp_problems(sizes, tp_size, false))
      report.line("  " + problem);
  }
  report.line("With --uneven they run; query heads stay whole, and KV heads follow them:");
  Table table{"uneven",
              {"tp", "query heads of each rank", "KV heads of each rank", "KV heads in all",
               "largest share of query heads above the mean"},
              {}};
  for (const int tp_size : {3, 5, 6}) table.rows.push_back(uneven_row(sizes, tp_size));
  report.table(table);
}

void show_rope_pairs(Report& report) {
  constexpr std::int32_t kPosition = 2;
  report.section("Which features RoPE turns together");
  const Matrix q(1, 4, {1, 2, 3, 4});
  report.line("one head of 4 features, theta 10000, position 2, q = " + format_row(q));
  const std::unique_ptr<Device> device = make_cpu_device();
  const RopeTable table(*device, kPosition + 1, q.cols, 10000);
  const auto turn = [&](Matrix head) {
    device->rope(head.view(), table, std::span(&kPosition, 1));
    return head;
  };
  const Matrix halves = turn(q);
  // The paper's pairs are neighbours: features 0 1 2 3 go to the places 0 2 1 3 and back.
  const Matrix moved = turn({1, 4, {q(0, 0), q(0, 2), q(0, 1), q(0, 3)}});
  const Matrix neighbours(1, 4, {moved(0, 0), moved(0, 2), moved(0, 1), moved(0, 3)});

  const auto six_decimals = [](const Matrix& m) {
    return fmt::format("[{:.6f}]", fmt::join(m.values, ", "));
  };
  report.line("pairs (0, 2) and (1, 3), the halves: " + six_decimals(halves));
  report.line("pairs (0, 1) and (2, 3), neighbours: " + six_decimals(neighbours) +
              " (wrong for these checkpoints)");
  const Matrix expected(1, 4, {-3.144039f, 1.919605f, -0.339143f, 4.039197f});
  const Matrix expected_wrong(1, 4, {-2.234742f, 0.077004f, 2.919405f, 4.059196f});
  const Tolerance digits{2e-6, "six decimals, rounded in f32"};
  report.check(compare("halves", halves.view(), expected.view(), digits));
  report.check(compare("neighbours (wrong)", neighbours.view(), expected_wrong.view(), digits));
}

}  // namespace tp

#include "article_example.h"

#include <fmt/format.h>

#include "common/core/matrix.h"
#include "common/engine/kv_pool.h"
#include "common/engine/plan_check.h"
#include "common/model/kv_cache.h"
#include "common/parallel/run_ranks.h"
#include "common/parallel/shards.h"
#include "story.h"

namespace tp {

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kArticleHeads = 32, kArticleHeadDim = 128;
constexpr std::uint64_t kLastStep = 7;  // A has three blocks, the last one is 3
constexpr std::int64_t kWatchedBlock = 3;

KvLayout layout_of(Range heads) {
  return {1, heads.size(), kArticleHeadDim, kBlockSize, kPoolBlocks};
}

// One row, in which all numbers of head h are h: keys that say what they are.
Matrix row_of_head_numbers(Range heads) {
  Matrix row(1, heads.size() * kArticleHeadDim);
  for (std::int64_t c = 0; c < row.cols; ++c) {
    const std::int64_t head = heads.begin + c / kArticleHeadDim;
    row(0, c) = static_cast<float>(head);
  }
  return row;
}

// Receives rank 0's plans and puts head numbers where they say.
void store_head_numbers(RankContext& ctx, RankOutput& out, std::string& table_of_a) {
  const Range heads = shard_range(kArticleHeads, ctx.rank, ctx.tp_size);
  KvCache cache(ctx.device, layout_of(heads));
  const Tensor row = ctx.device.write(row_of_head_numbers(heads).view(), "activations");
  ControlPlane control(kPoolBlocks, kBlockSize);  // only rank 0 asks it
  std::vector<std::byte> message;
  BatchPlan plan;
  while (plan.step < kLastStep) {
    if (ctx.rank == 0) control.next().encode(message);
    ctx.group.broadcast(message, 0);
    plan.decode(message);
    check_plans_equal(ctx, plan, letter_of);
    for (const std::int32_t slot : plan.slot_mapping)
      ctx.device.store_kv(row, row, std::span(&slot, 1), cache.layer(0));
  }
  table_of_a = block_table_of(plan, kA);
  out.keep("block", cache.layer(0).keys.rows_in({kWatchedBlock, kWatchedBlock + 1}));
}

// "8-15": which head numbers lie in the first place of the block, read from the cache.
std::string heads_in(ConstTensorView block) {
  const std::int64_t heads = block.shape[1], head_stride = block.shape[2] * block.shape[3];
  const float* numbers = block.row<float>(0);
  return fmt::format("{}-{}", numbers[0], numbers[(heads - 1) * head_stride]);
}

}  // namespace

void show_article_example(const Options& options, Report& report) {
  Launch launch = Launch::from(options);
  launch.tp_size = kRanks;
  std::vector<std::string> tables(kRanks);
  const auto ranks = run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    store_head_numbers(ctx, out, tables[static_cast<std::size_t>(ctx.rank)]);
  });

  report.section("The article's example: 32 KV heads on four ranks");
  report.line(
      "Sequence A has 11 tokens, a block has room for 4. Keys are head numbers here, read back "
      "from block 3.");
  Table table{"article_example",
              {"rank", "A's block table", "block 3 holds heads", "bytes of a block and layer, f32"},
              {}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Range heads = shard_range(kArticleHeads, static_cast<int>(r), kRanks);
    table.rows.push_back({std::to_string(r), tables[r], heads_in(ranks[r].tensor("block")),
                          std::to_string(layout_of(heads).bytes_per_block_and_layer())});
  }
  report.table(table);
  const char* wanted[] = {"0-7", "8-15", "16-23", "24-31"};
  for (std::size_t r = 0; r < ranks.size(); ++r)
    report.expect(fmt::format("rank {}: A's blocks, heads in block 3", r),
                  tables[r] + " " + table.rows[r][2], fmt::format("[2 0 3] {}", wanted[r]));
  report.expect("bytes of a block and layer on one device, 2 * 32 * 4 * 128 * 4",
                layout_of({0, kArticleHeads}).bytes_per_block_and_layer(), 131072);
  report.expect("the same on a rank of four",
                layout_of({0, kArticleHeads / kRanks}).bytes_per_block_and_layer(), 32768);
}

void show_blocks_needed(Report& report) {
  report.section("How many blocks a request needs");
  report.line(
      "P prompt tokens, G generated ones: P + G - 1 slots, for the last token is never run. Block "
      "size 4.");
  struct Request {
    std::int64_t prompt, generated;
  };
  Table table{"blocks_needed", {"P", "G", "slots", "blocks at prefill", "blocks at the end"}, {}};
  std::string ends;
  for (const Request& r : {Request{4, 1}, {4, 2}, {3, 2}, {5, 4}, {5, 5}, {8, 9}}) {
    BlockManager blocks(4, kBlockSize);
    BlockTable mine;
    blocks.grow(mine, r.prompt);
    const std::int64_t at_prefill = std::ssize(mine), slots = r.prompt + r.generated - 1;
    for (std::int64_t tokens = r.prompt + 1; tokens <= slots; ++tokens) blocks.grow(mine, tokens);
    table.rows.push_back({std::to_string(r.prompt), std::to_string(r.generated),
                          std::to_string(slots), std::to_string(at_prefill),
                          std::to_string(mine.size())});
    ends += fmt::format(" {}>{}", at_prefill, mine.size());
  }
  report.table(table);
  report.expect("blocks at prefill > at the end", ends.substr(1), "1>1 1>2 1>1 2>2 2>3 2>4");

  BlockManager pool(3, kBlockSize);
  for (int request = 0; request < 100; ++request) {
    BlockTable mine;
    for (std::int64_t tokens = 5; tokens <= 9; ++tokens) pool.grow(mine, tokens);
    pool.release(mine);
  }
  report.expect("free blocks of 3 after 100 requests with P = 5, G = 5", pool.free_blocks(), 3);
}

void show_pool_size(const Options& options, Report& report) {
  report.section("The smallest rank decides how many blocks there are");
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  constexpr std::int64_t kBlockBytes = 2 * 32 * 4 * 128 * 2 * 16;
  report.line(
      "32 layers, 4 KV heads per rank of 128, bf16, 16 tokens per block; 40 and 20 GiB are free:");
  report.expect("bytes of a block, 2 * 32 * 4 * 128 * 2 * 16", kBlockBytes, 1048576);
  Launch launch = Launch::from(options);
  launch.tp_size = 2;
  std::vector<KvPoolSize> sizes(2);
  run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    const std::int64_t free_bytes = (ctx.rank == 0 ? 40 : 20) * kGiB;
    sizes[static_cast<std::size_t>(ctx.rank)] = agree_on_pool_size(ctx, {free_bytes, kBlockBytes});
  });
  report.expect("room for blocks on rank 0", sizes[0].blocks_of_rank[0], 40960);
  report.expect("room for blocks on rank 1", sizes[0].blocks_of_rank[1], 20480);
  for (std::size_t r = 0; r < sizes.size(); ++r)
    report.expect(fmt::format("rank {} takes", r), sizes[r].num_blocks, 20480);
  report.line("  " + sizes[0].to_string());
}

}  // namespace tp

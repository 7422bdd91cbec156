#include "small_examples.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/parallel/shards.h"
#include "kv_layout.h"

namespace tp {

namespace {

std::string list_of(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ", "));
}

}  // namespace

void show_article_example(Report& report) {
  const KvShape shape{.heads = 32, .kv_heads = 8, .head_dim = 128};
  const std::vector<int> tp_sizes = usable_tp_sizes({shape.heads, shape.kv_heads});
  report.section("The article's example: 32 query heads, 8 KV heads");
  report.line(
      "KV bytes: per token and layer, 2 (K and V) * KV heads * 128 (head_dim) * 2 (bf16); sum: "
      "over all ranks");
  report.table(kv_by_tp_size("article_example", shape, tp_sizes, false));
  report.line(
      "From tp 8 to 16 a rank keeps 512 bytes as before. What helps instead: a shorter context,");
  report.line("fewer sequences at once, or KV elements of fewer bits.");

  std::vector<std::int64_t> query_heads, kv_heads, replicas, bytes, on_all;
  for (const int tp_size : tp_sizes) {
    const KvLayout layout = kv_layout(shape, tp_size);
    query_heads.push_back(layout.query_heads[0]);
    kv_heads.push_back(layout.kv_heads[0]);
    replicas.push_back(layout.kv_heads_on_all() / shape.kv_heads);
    bytes.push_back(layout.bytes[0]);
    on_all.push_back(layout.bytes_on_all());
  }
  report.expect("query heads a rank", list_of(query_heads), "32, 16, 8, 4, 2, 1");
  report.expect("KV heads a rank", list_of(kv_heads), "8, 4, 2, 1, 1, 1");
  report.expect("ranks that keep the same KV head", list_of(replicas), "1, 1, 1, 1, 2, 4");
  report.expect("KV bytes a rank", list_of(bytes), "4096, 2048, 1024, 512, 512, 512");
  report.expect("KV bytes on all ranks", list_of(on_all), "4096, 4096, 4096, 4096, 8192, 16384");

  report.section("Query head to KV head to rank");
  report.line("32 query heads, 8 KV heads; under each tp the ranks that keep the KV head");
  report.table(ranks_of_kv_heads(shape, tp_sizes));
}

void show_fewer_kv_heads_than_ranks(Report& report) {
  const KvShape shape{.heads = 32, .kv_heads = 4, .head_dim = 128};
  const KvLayout layout = kv_layout(shape, 8);
  report.section("Fewer KV heads than ranks: 32 query heads, 4 KV heads, tp 8");
  std::vector<std::string> read;
  for (const HeadShard& shard : layout.shards) read.push_back(cell_of(shard.kv));
  report.expect("KV head of rank 0 to 7", fmt::format("{}", fmt::join(read, ", ")),
                "0, 0, 1, 1, 2, 2, 3, 3");
  const Range kv = layout.shards[5].kv;
  report.expect("rows of k_proj and v_proj on rank 5", cell_of(kv.times(shape.head_dim)),
                "256-383");
  report.expect("KV bytes per token and layer on a rank", layout.bytes[5], 512);
  report.expect("the same on all 8 ranks", layout.bytes_on_all(), 4096);
  report.expect("the same on all ranks up to tp 4", kv_layout(shape, 4).bytes_on_all(), 2048);
  report.expect("KV heads of the model, once each", layout.shards[7].kv.end, 4);
  report.expect("KV heads a rank * ranks (wrong: counts replicas)", layout.kv_heads_on_all(), 8);
}

namespace {

void show_reasons(Report& report, const ShardedSizes& sizes, int tp_size, std::int64_t wanted) {
  const std::vector<std::string> problems = tp_problems(sizes, tp_size, false);
  report.expect(fmt::format("{} query heads, tp {}: reasons against it", sizes.heads, tp_size),
                std::ssize(problems), wanted);
  for (const std::string& problem : problems) report.line("    " + problem);
}

}  // namespace

void show_usable_sizes(Report& report) {
  report.section("Which tp sizes are usable");
  report.line("tp must divide the query heads and the intermediate size, and tp and the KV heads");
  report.line("must divide one another, one way or the other. Query heads alone would allow more:");
  Table table{"usable_sizes",
              {"query heads", "KV heads", "intermediate", "by query heads alone", "usable"},
              {}};
  struct Example {
    ShardedSizes sizes;
    std::string usable;
  };
  const std::vector<Example> examples{{{40, 10, 17920}, "1, 2, 5, 10, 20, 40"},
                                      {{28, 4, 18944}, "1, 2, 4"},
                                      {{96, 8}, "1, 2, 4, 8, 16, 24, 32, 48, 96"}};
  const auto list = [](const ShardedSizes& sizes, const char* separator) {
    return fmt::format("{}", fmt::join(usable_tp_sizes(sizes), separator));
  };
  for (const auto& [sizes, usable] : examples)
    table.rows.push_back({std::to_string(sizes.heads), std::to_string(sizes.kv_heads),
                          sizes.intermediate == 0 ? "-" : std::to_string(sizes.intermediate),
                          list({sizes.heads, sizes.heads}, " "), list(sizes, " ")});
  report.table(table);
  for (const auto& [sizes, usable] : examples)
    report.expect(fmt::format("usable with {} KV heads", sizes.kv_heads), list(sizes, ", "),
                  usable);
  show_reasons(report, examples[0].sizes, 4, 1);
  show_reasons(report, examples[1].sizes, 7, 2);
  show_reasons(report, examples[2].sizes, 6, 1);
  report.line("    (its vocabulary of 151552 is no reason: padded to 151554 rows, 25259 a rank)");
  const bool refused = !tp_problems({40, 12}, 1, true).empty();
  report.expect("40 query heads with 12 KV heads, at any tp", refused ? "refused" : "accepted",
                "refused");
}

namespace {

// One row per rank of an uneven split, and by how much the largest rank exceeds the mean.
void show_uneven_split(Report& report,
                       const KvShape& shape,
                       int tp_size,
                       const std::string& rank_1_reads,
                       const std::string& above_mean) {
  const KvLayout layout = kv_layout(shape, tp_size);
  const HeadShard& rank_1 = layout.shards[1];
  report.line(
      fmt::format("{} query heads, {} KV heads, tp {}:", shape.heads, shape.kv_heads, tp_size));
  Table table{fmt::format("uneven_{}_{}_{}", shape.heads, shape.kv_heads, tp_size),
              {"rank", "query heads", "KV head that each reads", "KV heads kept"},
              {}};
  for (const HeadShard& shard : layout.shards)
    table.rows.push_back({std::to_string(table.rows.size()), cell_of(shard.query),
                          kv_heads_read(shard, shard.kv), cell_of(shard.kv)});
  report.table(table);
  report.expect("rank 1 reads the KV heads", kv_heads_read(rank_1, rank_1.kv), rank_1_reads);
  report.expect("most loaded rank above the mean, query heads and KV heads, %",
                fmt::format("{:.1f} and {:.1f}", imbalance_percent(shape.heads, tp_size),
                            kv_imbalance_percent(layout)),
                above_mean);
}

}  // namespace

void show_uneven(Report& report) {
  report.section("Uneven splits");
  show_uneven_split(report, {.heads = 8, .kv_heads = 2}, 3, "0, 0, 1", "12.5 and 50.0");
  report.line();
  show_uneven_split(report, {.heads = 28, .kv_heads = 4}, 7, "0, 0, 0, 1", "0.0 and 40.0");
}

void show_70b(Report& report) {
  const KvShape shape{
      .heads = 64, .kv_heads = 8, .head_dim = 128, .layers = 80, .context_tokens = 8192};
  report.section("A 70B model: one sequence of 8192 tokens");
  show_kv_by_tp_size(report, "kv_70b", shape, usable_tp_sizes({shape.heads, shape.kv_heads}));

  const auto mib_a_rank = [](const KvShape& s, int tp_size, std::int64_t sequences) {
    return format_mib(kv_layout(s, tp_size).bytes[0] * s.layers * s.context_tokens * sequences);
  };
  report.expect("MiB a rank at tp 8", mib_a_rank(shape, 8, 1), "320");
  report.expect("MiB a rank at tp 16", mib_a_rank(shape, 16, 1), "320");

  KvShape short_context = shape, eight_bits = shape;
  short_context.context_tokens /= 2;
  eight_bits.bits = 8;
  report.line("What makes the KV cache of 8 such sequences smaller, from tp 8 on:");
  report.table({"what_helps",
                {"change", "MiB a rank"},
                {{"none: tp 8", mib_a_rank(shape, 8, 8)},
                 {"twice the ranks: tp 16", mib_a_rank(shape, 16, 8)},
                 {"half the context: 4096 tokens", mib_a_rank(short_context, 8, 8)},
                 {"half the concurrency: 4 sequences", mib_a_rank(shape, 8, 4)},
                 {"half the KV precision: 8 bits (scales not counted; check the quality)",
                  mib_a_rank(eight_bits, 8, 8)}}});
}

}  // namespace tp

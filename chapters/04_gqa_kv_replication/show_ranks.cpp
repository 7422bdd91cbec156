#include "show_ranks.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "common/core/matrix.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// The columns of a row that are not zero, as a range.
Range nonzero_columns(const Matrix& row) {
  const auto not_zero = [](float value) { return value != 0; };
  const auto first = std::find_if(row.values.begin(), row.values.end(), not_zero);
  const std::int64_t begin = first - row.values.begin();
  return {begin, begin + std::count_if(row.values.begin(), row.values.end(), not_zero)};
}

}  // namespace

void show_shapes(const Options& options, const KvShape& shape, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  std::vector<int> sizes = usable_tp_sizes({shape.heads, shape.kv_heads});
  if (std::find(sizes.begin(), sizes.end(), tp_size) == sizes.end()) sizes.push_back(tp_size);
  std::sort(sizes.begin(), sizes.end());
  report.section("KV cache by tp");
  show_kv_by_tp_size(report, "kv_by_tp", shape, sizes);

  report.section("Shapes");
  std::vector<std::string> q, kv, cache;
  const KvLayout layout = kv_layout(shape, tp_size);
  for (const HeadShard& shard : layout.shards) {
    q.push_back(Shape{shard.query.size() * shape.head_dim, kHidden}.to_string());
    kv.push_back(Shape{shard.kv.size() * shape.head_dim, kHidden}.to_string());
    cache.push_back(Shape{1, shard.kv.size(), kTokens, shape.head_dim}.to_string());
  }
  const auto whole = [&](std::int64_t heads) {
    return Shape{heads * shape.head_dim, kHidden}.to_string();
  };
  // Uneven ranks differ in two sizes at most; which rank has which is in the table of the ranks.
  for (auto* shapes : {&q, &kv, &cache}) std::sort(shapes->begin(), shapes->end());
  report.table({"shapes",
                {"tensor", "whole", "local shapes * ranks"},
                {{"q_proj", whole(shape.heads), cell_of(q)},
                 {"k_proj, v_proj", whole(shape.kv_heads), cell_of(kv)},
                 {"keys, values", Shape{1, shape.kv_heads, kTokens, shape.head_dim}.to_string(),
                  cell_of(cache)}}});
  const double queries = imbalance_percent(shape.heads, tp_size),
               kvs = kv_imbalance_percent(layout);
  if (queries > 0 || kvs > 0)
    report.line(fmt::format(
        "uneven: the largest rank has {:.1f} % more query heads and {:.1f} % more KV heads than "
        "the mean",
        queries, kvs));
}

void show_ranks(const KvShape& shape, const std::vector<RankOutput>& ranks, Report& report) {
  const KvLayout layout = kv_layout(shape, static_cast<int>(ranks.size()));
  report.section("What each rank holds");
  Table table{"ranks",
              {"rank", "query heads", "KV head that each reads", "rows of k_proj, v_proj",
               "KV bytes, 5 tokens, f32"},
              {}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Range kept = nonzero_columns(to_matrix(ranks[r].tensor("kept")));
    table.rows.push_back({std::to_string(r), cell_of(layout.shards[r].query),
                          kv_heads_read(layout.shards[r], kept),
                          cell_of(kept.times(shape.head_dim)),
                          std::to_string(ranks[r].memory.use("kv").peak_bytes)});
  }
  report.table(table);
}

void check_ranks(const KvShape& shape, const std::vector<RankOutput>& ranks, Report& report) {
  const KvLayout layout = kv_layout(shape, static_cast<int>(ranks.size()));
  std::vector<std::string> counted, replicas, allocated, bytes;
  const Matrix sums = to_matrix(ranks[0].tensor("replicas"));
  for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
    counted.push_back(fmt::format("{}", sums(0, kv)));
    replicas.push_back(std::to_string(
        std::count_if(layout.shards.begin(), layout.shards.end(),
                      [&](const HeadShard& shard) { return shard.kv.contains(kv); })));
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    allocated.push_back(std::to_string(ranks[r].memory.use("kv").peak_bytes));
    bytes.push_back(std::to_string(layout.bytes[r] * kTokens));
  }
  report.expect("ranks that keep each KV head", cell_of(counted), cell_of(replicas));
  report.expect("KV bytes that each rank allocates", cell_of(allocated), cell_of(bytes));
}

}  // namespace tp

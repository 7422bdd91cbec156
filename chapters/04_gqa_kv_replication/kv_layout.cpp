#include "kv_layout.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// Far above every known model, and small enough that no product of them overflows.
constexpr std::int64_t kMaxHeads = 512, kMaxHeadDim = 512, kMaxLayers = 1000;
constexpr std::int64_t kMaxTokens = 100'000'000;
constexpr std::int64_t kMaxShownOneByOne = 8;

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// "4", or "2-3" where the ranks differ.
std::string least_to_most(const std::vector<std::int64_t>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{}-{}", *least, *most);
}

}  // namespace

std::string KvShape::to_string() const {
  return fmt::format(
      "{} query heads, {} KV heads of {}, {} layers, {} tokens, KV elements of {} bits", heads,
      kv_heads, head_dim, layers, context_tokens, bits);
}

std::vector<ExtraOption> shape_options(KvShape& shape) {
  return {{"--heads", &shape.heads, "query heads of the model"},
          {"--kv-heads", &shape.kv_heads, "its KV heads; they must divide the query heads"},
          {"--head-dim", &shape.head_dim, "elements of one head"},
          {"--layers", &shape.layers, "its layers"},
          {"--context", &shape.context_tokens, "tokens whose keys and values are kept"},
          {"--kv-bits", &shape.bits, "bits of a KV element: 32 (f32), 16 (bf16), 8, 4"}};
}

void check_shape(const KvShape& shape, const Options& options) {
  std::vector<std::string> problems;
  const auto must_be_in_range = [&](const char* flag, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
      problems.push_back(fmt::format("{} {}: must be 1 to {}", flag, value, most));
  };
  must_be_in_range("--heads", shape.heads, kMaxHeads);
  must_be_in_range("--kv-heads", shape.kv_heads, kMaxHeads);
  const ShardedSizes sizes{shape.heads, shape.kv_heads};
  const bool heads_are_numbers = problems.empty();
  must_be_in_range("--head-dim", shape.head_dim, kMaxHeadDim);
  must_be_in_range("--layers", shape.layers, kMaxLayers);
  must_be_in_range("--context", shape.context_tokens, kMaxTokens);
  if (shape.bits != 32 && shape.bits != 16 && shape.bits != 8 && shape.bits != 4)
    problems.push_back(fmt::format("--kv-bits {}: must be 32, 16, 8 or 4", shape.bits));

  const auto tp_size = static_cast<int>(options.tp);
  if (problems.empty()) return check_tp_size(sizes, tp_size, options.uneven);
  if (heads_are_numbers)
    for (const std::string& problem : tp_problems(sizes, tp_size, options.uneven))
      problems.push_back(problem);
  throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

std::int64_t kv_bytes(const KvShape& shape, std::int64_t kv_heads) {
  return 2 * kv_heads * shape.head_dim * shape.bits / 8;
}

std::int64_t KvLayout::kv_heads_on_all() const {
  return sum_of(kv_heads);
}

std::int64_t KvLayout::bytes_on_all() const {
  return sum_of(bytes);
}

KvLayout kv_layout(const KvShape& shape, int tp_size) {
  KvLayout layout;
  for (int rank = 0; rank < tp_size; ++rank) {
    const HeadShard shard = head_shard(shape.heads, shape.kv_heads, rank, tp_size);
    layout.shards.push_back(shard);
    layout.query_heads.push_back(shard.query.size());
    layout.kv_heads.push_back(shard.kv.size());
    layout.bytes.push_back(kv_bytes(shape, shard.kv.size()));
  }
  return layout;
}

Table kv_by_tp_size(const std::string& name,
                    const KvShape& shape,
                    const std::vector<int>& tp_sizes,
                    bool whole_context) {
  Table table{name, {"tp", "query heads", "KV heads", "replicas", "KV bytes a rank", "sum"}, {}};
  if (whole_context) table.header.insert(table.header.end(), {"MiB a rank", "sum"});
  table.header.emplace_back("");
  const std::int64_t context = shape.layers * shape.context_tokens;
  std::int64_t least = 0;  // bytes on the most loaded rank, of all rows so far
  bool marked = false;
  for (const int tp_size : tp_sizes) {
    const KvLayout layout = kv_layout(shape, tp_size);
    const std::int64_t most = *std::max_element(layout.bytes.begin(), layout.bytes.end());
    const double replicas =
        static_cast<double>(layout.kv_heads_on_all()) / static_cast<double>(shape.kv_heads);
    std::vector<std::string> row{
        std::to_string(tp_size),        least_to_most(layout.query_heads),
        least_to_most(layout.kv_heads), fmt::format("{:.4g}", replicas),
        least_to_most(layout.bytes),    std::to_string(layout.bytes_on_all())};
    if (whole_context) {
      row.push_back(format_mib(most * context));
      row.push_back(format_mib(layout.bytes_on_all() * context));
    }
    const bool stops = !marked && !table.rows.empty() && most >= least;
    row.emplace_back(stops ? "<- KV stops shrinking" : "");
    marked = marked || stops;
    least = table.rows.empty() ? most : std::min(least, most);
    table.rows.push_back(row);
  }
  return table;
}

void show_kv_by_tp_size(Report& report,
                        const std::string& name,
                        const KvShape& shape,
                        const std::vector<int>& tp_sizes) {
  report.line(shape.to_string());
  report.line(
      "KV bytes: per token and layer; MiB: all of them, on the rank with the most KV heads");
  report.table(kv_by_tp_size(name, shape, tp_sizes, true));
}

Table ranks_of_kv_heads(const KvShape& shape, const std::vector<int>& tp_sizes) {
  Table table{"ranks_of_kv_heads", {"KV head", "query heads"}, {}};
  const std::int64_t group = heads_per_kv_head(shape.heads, shape.kv_heads);
  for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv)
    table.rows.push_back({std::to_string(kv), cell_of({kv * group, (kv + 1) * group})});
  for (const int tp_size : tp_sizes) {
    table.header.push_back(fmt::format("tp {}", tp_size));
    const KvLayout layout = kv_layout(shape, tp_size);
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      const auto keeps = [&](const HeadShard& shard) { return shard.kv.contains(kv); };
      const auto first = std::find_if(layout.shards.begin(), layout.shards.end(), keeps);
      const auto count = std::count_if(layout.shards.begin(), layout.shards.end(), keeps);
      const std::int64_t rank = first - layout.shards.begin();
      table.rows[static_cast<std::size_t>(kv)].push_back(cell_of({rank, rank + count}));
    }
  }
  return table;
}

std::string kv_heads_read(const HeadShard& shard, Range kv) {
  std::vector<std::string> heads;
  for (std::int64_t q = 0; q < shard.query.size(); ++q)
    heads.push_back(std::to_string(kv.begin + shard.kv_local(q)));
  return std::ssize(heads) <= kMaxShownOneByOne ? fmt::format("{}", fmt::join(heads, ", "))
                                                : cell_of(heads);
}

double kv_imbalance_percent(const KvLayout& layout) {
  const auto most =
      static_cast<double>(*std::max_element(layout.kv_heads.begin(), layout.kv_heads.end()));
  const double mean =
      static_cast<double>(layout.kv_heads_on_all()) / static_cast<double>(layout.kv_heads.size());
  return (most / mean - 1) * 100;
}

std::string format_mib(std::int64_t bytes) {
  return fmt::format("{:.6g}", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace tp

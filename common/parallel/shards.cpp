#include "common/parallel/shards.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

// Why the heads of a model cannot be grouped; empty if they can.
std::string grouping_problem(std::int64_t heads, std::int64_t kv_heads) {
  if (kv_heads > 0 && heads > 0 && heads % kv_heads == 0) return "";
  return fmt::format("num_attention_heads={} is not a multiple of num_key_value_heads={}", heads,
                     kv_heads);
}

}  // namespace

std::vector<Range> shard_ranges(std::int64_t total, int tp_size) {
  std::vector<Range> ranges;
  for (int rank = 0; rank < tp_size; ++rank) ranges.push_back(shard_range(total, rank, tp_size));
  return ranges;
}

double imbalance_percent(std::int64_t total, int tp_size) {
  std::int64_t largest = 0;
  for (const Range& range : shard_ranges(total, tp_size)) largest = std::max(largest, range.size());
  const double mean = static_cast<double>(total) / tp_size;
  return (static_cast<double>(largest) / mean - 1) * 100;
}

std::int64_t heads_per_kv_head(std::int64_t heads, std::int64_t kv_heads) {
  const std::string problem = grouping_problem(heads, kv_heads);
  if (!problem.empty())
    throw input_error(problem + ", so query heads cannot share KV heads evenly");
  return heads / kv_heads;
}

HeadShard head_shard(std::int64_t heads, std::int64_t kv_heads, int rank, int tp_size) {
  const std::int64_t group = heads_per_kv_head(heads, kv_heads);
  const Range query = shard_range(heads, rank, tp_size);
  // From the KV head of the first query head to the one of the last.
  const Range kv{query.begin / group, (query.end + group - 1) / group};
  return {query, kv, group};
}

VocabShard vocab_shard(std::int64_t vocab_size, int rank, int tp_size) {
  const std::int64_t rows = (vocab_size + tp_size - 1) / tp_size;
  return {{rank * rows, (rank + 1) * rows}, vocab_size};
}

void check_divides(const std::string& name, std::int64_t total, std::int64_t tp_size, bool uneven) {
  if (tp_size > total)
    throw input_error(fmt::format("--tp {}: more ranks than {}={}", tp_size, name, total));
  if (uneven || total % tp_size == 0) return;
  std::vector<std::int64_t> usable;
  for (std::int64_t size = 1; size <= total; ++size)
    if (total % size == 0) usable.push_back(size);
  throw input_error(
      fmt::format("--tp {}: {}={} is not a multiple of it; usable sizes: {}; or add --uneven",
                  tp_size, name, total, fmt::join(usable, ", ")));
}

std::vector<std::string> tp_problems(const ShardedSizes& sizes, int tp_size, bool uneven) {
  std::vector<std::string> problems;
  const std::string grouping = grouping_problem(sizes.heads, sizes.kv_heads);
  if (!grouping.empty()) return {grouping};
  if (tp_size > sizes.heads) {
    problems.push_back(fmt::format("num_attention_heads={}: fewer query heads than {} ranks",
                                   sizes.heads, tp_size));
    return problems;
  }
  if (uneven) return problems;
  const auto must_divide = [&](const char* name, std::int64_t size) {
    if (size % tp_size != 0)
      problems.push_back(fmt::format("{}={} is not a multiple of tp={} (remainder {})", name, size,
                                     tp_size, size % tp_size));
  };
  must_divide("num_attention_heads", sizes.heads);
  if (sizes.kv_heads % tp_size != 0 && tp_size % sizes.kv_heads != 0)
    problems.push_back(fmt::format(
        "num_key_value_heads={} and tp={}: neither divides the other ({} % {} = {}, {} % {} = {})",
        sizes.kv_heads, tp_size, sizes.kv_heads, tp_size, sizes.kv_heads % tp_size, tp_size,
        sizes.kv_heads, tp_size % sizes.kv_heads));
  must_divide("intermediate_size", sizes.intermediate);
  return problems;
}

std::vector<int> usable_tp_sizes(const ShardedSizes& sizes) {
  std::vector<int> usable;
  for (int tp_size = 1; tp_size <= sizes.heads; ++tp_size)
    if (tp_problems(sizes, tp_size, false).empty()) usable.push_back(tp_size);
  return usable;
}

void check_tp_size(const ShardedSizes& sizes, int tp_size, bool uneven) {
  heads_per_kv_head(sizes.heads, sizes.kv_heads);  // no tp_size would cure that
  const std::vector<std::string> problems = tp_problems(sizes, tp_size, uneven);
  if (problems.empty()) return;
  std::string usable = fmt::format("{}", fmt::join(usable_tp_sizes(sizes), ", "));
  if (uneven)
    usable = fmt::format("1 to {}", sizes.heads);
  else if (tp_size <= sizes.heads)
    usable += "; or add --uneven to split unevenly";
  throw input_error(fmt::format("--tp {} cannot split this model:\n  {}\nusable sizes: {}", tp_size,
                                fmt::join(problems, "\n  "), usable));
}

}  // namespace tp

#include "common/engine/kv_pool.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

std::string KvPoolSize::to_string() const {
  std::string text = fmt::format("{} blocks on every rank", num_blocks);
  if (limiting_rank)
    text += fmt::format(": rank {} limits, others have room for up to {}", *limiting_rank,
                        *std::max_element(blocks_of_rank.begin(), blocks_of_rank.end()));
  return text;
}

KvPoolSize common_pool_size(std::span<const KvBudget> budgets) {
  KvPoolSize size;
  std::vector<std::string> problems;
  for (const KvBudget& budget : budgets) {
    const std::size_t rank = size.blocks_of_rank.size();
    const std::int64_t blocks =
        budget.bytes_per_block > 0 ? budget.bytes / budget.bytes_per_block : 0;
    if (blocks < 1)
      problems.push_back(fmt::format(
          "rank {} has {} bytes for its KV cache, which is no room for one block of {} bytes", rank,
          budget.bytes, budget.bytes_per_block));
    size.blocks_of_rank.push_back(blocks);
  }
  if (!problems.empty())
    throw input_error(fmt::format(
        "{}\ngive the KV cache more memory, use smaller blocks, or split the model over more ranks",
        fmt::join(problems, "\n")));
  const auto [least, most] =
      std::minmax_element(size.blocks_of_rank.begin(), size.blocks_of_rank.end());
  size.num_blocks = *least;
  if (*least != *most) size.limiting_rank = static_cast<int>(least - size.blocks_of_rank.begin());
  return size;
}

KvPoolSize agree_on_pool_size(const RankContext& ctx, const KvBudget& mine) {
  const auto all = ctx.group.exchange(std::as_bytes(std::span(&mine, 1)));
  std::vector<KvBudget> budgets(static_cast<std::size_t>(ctx.tp_size));
  std::memcpy(budgets.data(), all.data(), all.size());
  try {
    return common_pool_size(budgets);
  } catch (const Error&) {
    if (ctx.rank == 0) throw;
    throw Aborted();  // rank 0 says why
  }
}

}  // namespace tp

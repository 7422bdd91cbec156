#include "common/engine/plan_check.h"

#include <algorithm>
#include <cstring>

#include "common/core/error.h"

namespace tp {

namespace {

// One value of every rank, in rank order.
std::vector<std::uint64_t> exchange_value(const RankContext& ctx, std::uint64_t value) {
  const auto all = ctx.group.exchange(std::as_bytes(std::span(&value, 1)));
  std::vector<std::uint64_t> values(static_cast<std::size_t>(ctx.tp_size));
  std::memcpy(values.data(), all.data(), all.size());
  return values;
}

// The plans of all ranks, in rank order.
std::vector<BatchPlan> exchange_plans(const RankContext& ctx, const BatchPlan& mine) {
  std::vector<std::byte> bytes;
  mine.encode(bytes);
  const std::vector<std::uint64_t> sizes = exchange_value(ctx, bytes.size());
  bytes.resize(*std::max_element(sizes.begin(), sizes.end()));
  const auto all = ctx.group.exchange(bytes);
  std::vector<BatchPlan> plans(sizes.size());
  for (std::size_t r = 0; r < plans.size(); ++r)
    plans[r].decode(all.subspan(r * bytes.size(), sizes[r]));
  return plans;
}

}  // namespace

void check_plans_equal(const RankContext& ctx, const BatchPlan& plan, const SequenceName& name) {
  const std::vector<std::uint64_t> hashes = exchange_value(ctx, plan.fingerprint());
  if (std::all_of(hashes.begin(), hashes.end(), [&](auto hash) { return hash == hashes[0]; }))
    return;
  const std::vector<BatchPlan> plans = exchange_plans(ctx, plan);
  if (ctx.rank != 0) throw Aborted();  // rank 0 says why
  for (int rank = 1; rank < ctx.tp_size; ++rank) {
    const std::string difference =
        first_difference(plans[0], 0, plans[static_cast<std::size_t>(rank)], rank, name);
    if (!difference.empty())
      throw Error(ErrorKind::rank, "the ranks do not run the same plan: " + difference);
  }
  throw Error(ErrorKind::rank, "the ranks' plan hashes differ, but their plans are equal");
}

}  // namespace tp

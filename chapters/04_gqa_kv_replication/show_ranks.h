// What the ranks hold for the asked shape: their shapes, their heads and their bytes.
#pragma once

#include <vector>

#include "common/core/report.h"
#include "common/parallel/run_ranks.h"
#include "kv_layout.h"

namespace tp {

// The sizes of the run that have nothing to do with heads.
constexpr std::int64_t kTokens = 5, kHidden = 11;

// The KV cache by tp, and the local shapes at the asked tp.
void show_shapes(const Options& options, const KvShape& shape, Report& report);

// One row per rank, from what the ranks left: "kept", a row with a 1 for each KV head that the rank
// has loaded, and the bytes of its KV cache.
void show_ranks(const KvShape& shape, const std::vector<RankOutput>& ranks, Report& report);

// What the ranks counted ("replicas") and allocated, against the arithmetic.
void check_ranks(const KvShape& shape, const std::vector<RankOutput>& ranks, Report& report);

}  // namespace tp

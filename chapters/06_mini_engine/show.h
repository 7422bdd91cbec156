// What the mini engine prints before it speaks.
#pragma once

#include "common/core/report.h"
#include "common/model/weights.h"
#include "common/parallel/rank_context.h"
#include "job.h"

namespace tp {

// The model, and what each rank holds of it.
void show_shapes(Report& report, const Job& job, const Options& options, const Weights& weights);

// The bytes that each rank has allocated, and what fits into the KV cache.
// Ranks: every rank; rank 0 prints.
void show_memory(Report& report, const Job& job, const RankContext& ctx);

}  // namespace tp

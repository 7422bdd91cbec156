// Loading the weights: watched while it happens, and explained with --explain-load.
#pragma once

#include "common/core/report.h"
#include "common/model/decoder.h"
#include "common/model/weights.h"
#include "common/parallel/rank_context.h"
#include "job.h"

namespace tp {

// Loads this rank's shard. Rank 0 shows the progress on a terminal, and notes which weights are not
// finite.
// Ranks: every rank.
// Errors: tp::Error (input) naming the weight if a value does not fit into the dtype of --dtype.
Decoder load_decoder(const RankContext& ctx,
                     const Job& job,
                     const Weights& weights,
                     const DecoderShard& shard,
                     const DecoderLimits& limits,
                     Report& report);

// Prints for each tensor which bytes of the files each rank reads, lets the ranks load, and compares
// what they copied.
void explain_load(const Job& job, const Options& options, const Weights& weights, Report& report);

}  // namespace tp

// Do all ranks run the same step? [introduced in chapter 05]
#pragma once

#include "common/engine/batch_plan.h"
#include "common/parallel/rank_context.h"

namespace tp {

// Compares what every rank is about to run. A difference would not be seen otherwise: the ranks'
// calls and sizes agree, and only the text goes wrong.
// Ranks:  every rank.
// Moves:  8 bytes per rank over the host group; the plans themselves only if these differ.
// Errors: tp::Error (rank) on rank 0 that names the first field that differs and both values;
//         Aborted on the others.
void check_plans_equal(const RankContext& ctx,
                       const BatchPlan& plan,
                       const SequenceName& name = {});

}  // namespace tp

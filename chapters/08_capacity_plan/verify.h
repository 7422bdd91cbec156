// The plan against the engine: the same layout is built and run on this machine.
#pragma once

#include "common/core/options.h"
#include "common/core/report.h"
#include "job.h"

namespace tp {

// For each tp of the job: what each rank allocates, by tag, must be what was planned; then the
// stated requests run to the stated context, and must use the planned blocks without a preemption.
// Errors: tp::Error (input) if the model has no weights, or this machine too little memory.
void verify_plan(const PlanJob& job, const Options& options, Report& report);

}  // namespace tp

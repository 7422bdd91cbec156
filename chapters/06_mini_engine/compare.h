// The ranks' results beside those of one device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/core/report.h"
#include "common/model/weights.h"
#include "common/parallel/run_ranks.h"
#include "job.h"

namespace tp {

// Every entry must have run; one that has not is a failed check.
void expect_no_errors(Report& report, const Job& job, const std::vector<Completion>& completions);

// Generates every request again, alone and on one device, and compares the token ids and the logits
// behind them.
void compare_tokens(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    const std::vector<Completion>& completions);

// Runs the ids once more on one device and compares the output of every module of every layer with
// what each rank kept under the same name; names the first difference.
void compare_layers(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    std::span<const std::int32_t> ids,
                    const std::vector<RankOutput>& ranks);

}  // namespace tp

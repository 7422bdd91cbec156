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

// A prompt and the text after it, run once more in a single step, to look at every module.
struct Inspection {
  std::size_t entry = 0;          // whose prompt
  std::vector<std::int32_t> ids;  // as many of the tokens as one step can take
  std::size_t all_tokens = 0;     // that there are
};

// Runs the same on one device and compares the output of every module of every layer with what each
// rank kept under the same name; names the first difference.
void compare_layers(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    const Inspection& inspection,
                    const std::vector<RankOutput>& ranks);

}  // namespace tp

#include "common/engine/step_graphs.h"

#include <algorithm>

namespace tp {

namespace {

// One new token of each sequence, whose logits are wanted.
bool is_decode(const BatchPlan& plan) {
  return std::all_of(plan.sequences.begin(), plan.sequences.end(),
                     [](const PlannedSequence& s) { return s.rows == 1 && s.logit_rows == 1; });
}

}  // namespace

StepGraphs::StepGraphs(const RankContext& ctx, bool wanted) : ctx_(ctx) {
  if (!ctx.device.can_capture()) return;
  if (!wanted)
    why_not_ = "as asked for (--enforce-eager, --compare layers)";
  else if (!ctx.comm.can_capture())
    why_not_ = "the ranks meet on the host in every collective, which a replay does not";
  else
    enabled_ = true;
}

ConstTensorView StepGraphs::run(const BatchPlan& plan, const Forward& forward) {
  replayed_ = false;
  if (!enabled_ || !is_decode(plan)) return forward();
  const auto [place, is_new] = by_sequences_.try_emplace(plan.sequences.size());
  if (is_new) return forward();
  Captured& captured = place->second;
  if (!captured.step) capture(captured, forward);
  ctx_.device.replay(*captured.step);
  ctx_.comm.replayed(captured.calls);
  replayed_ = true;
  return captured.logits;
}

void StepGraphs::capture(Captured& captured, const Forward& forward) {
  ctx_.device.begin_capture();
  try {
    ctx_.comm.start_recording();
    captured.logits = forward();
    captured.calls = ctx_.comm.stop_recording();
    captured.step = ctx_.device.end_capture();
  } catch (...) {
    ctx_.device.abandon_capture();
    throw;
  }
}

std::int64_t StepGraphs::operations() const {
  std::int64_t most = 0;
  for (const auto& [sequences, captured] : by_sequences_)
    if (captured.step) most = std::max(most, captured.step->operations());
  return most;
}

}  // namespace tp

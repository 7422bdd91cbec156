// Decode steps that are recorded once and then replayed. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/engine/batch_plan.h"
#include "common/parallel/rank_context.h"

namespace tp {

// A decode step launches the same few hundred small kernels for every token, and the GPU is done with
// each sooner than the host has launched the next. So on a GPU a step is captured, once for each
// number of sequences, and from then on launched as a whole (a CUDA graph).
//
// Ranks: every rank, with the same plans: so all of them capture the same step, and replay the same
//        one. The collectives are audited when they are captured; afterwards the comparison of
//        the plans' hashes says that all ranks replay the same.
class StepGraphs {
 public:
  // Computes a step and returns its logits.
  using Forward = std::function<ConstTensorView()>;

  // Without `wanted`, or if the device or the communicator cannot, all steps run one by one.
  StepGraphs(const RankContext& ctx, bool wanted);

  // Runs the step: the first time with so many sequences one by one, which also sets aside all
  // memory; the second time it is captured, and then replayed.
  // Errors: those of forward.
  ConstTensorView run(const BatchPlan& plan, const Forward& forward);

  // Why no step is captured; empty if steps are, or if the device is a CPU.
  const std::string& why_not() const { return why_not_; }
  // Whether the last step was a replay.
  bool replayed() const { return replayed_; }
  // Operations of the largest captured step; 0 if none was captured.
  std::int64_t operations() const;

 private:
  struct Captured {
    std::unique_ptr<CapturedStep> step;  // none: this step has run once, one by one
    std::vector<Call> calls;
    ConstTensorView logits;
  };

  void capture(Captured& captured, const Forward& forward);

  const RankContext& ctx_;
  bool enabled_ = false;
  std::string why_not_;
  bool replayed_ = false;
  std::map<std::size_t, Captured> by_sequences_;
};

}  // namespace tp

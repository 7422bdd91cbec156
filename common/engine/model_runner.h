// Runs the steps that rank 0 plans, on every rank. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <vector>

#include "common/engine/batch_plan.h"
#include "common/engine/plan_check.h"
#include "common/engine/step_graphs.h"
#include "common/model/decoder.h"

namespace tp {

// The execution plane: a rank holds its weights, its KV cache and the plan of the current step, and
// nothing else of any request.
class ModelRunner {
 public:
  // Without `check_plans` the ranks believe what they received; without `capture_steps` decode steps
  // are never captured (step_graphs.h).
  ModelRunner(const RankContext& ctx,
              Decoder& decoder,
              bool check_plans = true,
              bool capture_steps = true)
      : ctx_(ctx), decoder_(decoder), check_plans_(check_plans), graphs_(ctx, capture_steps) {}

  // Rank 0: sends the plan to all ranks and runs its own part of it.
  // Shapes: logits [all logit_rows of the plan, vocab_size], in the order of the sequences; valid
  //         until the next call.
  ConstTensorView lead(const BatchPlan& plan, const Tap& tap = {});
  // Rank 0: sends the other ranks home.
  void stop();

  // Every other rank: runs the plans of rank 0 until it stops. The tap is called as in Decoder. With
  // taps no step may be captured: a rank with one would run what the others replay.
  void follow(const Tap& tap = {});

  const Decoder& decoder() const { return decoder_; }
  Device& device() const { return ctx_.device; }
  const StepGraphs& graphs() const { return graphs_; }
  // The message of the last step, as it was sent.
  const std::vector<std::byte>& message() const { return message_; }

 private:
  void receive();
  ConstTensorView run(const Tap& tap);

  const RankContext& ctx_;
  Decoder& decoder_;
  bool check_plans_;
  StepGraphs graphs_;
  std::vector<std::byte> message_;
  BatchPlan plan_;  // decoded from the message, on rank 0 too
  std::vector<SequenceRows> sequences_;
  std::vector<std::int32_t> logit_rows_;
};

}  // namespace tp

#include "common/engine/model_runner.h"

namespace tp {

// [region lead_and_follow]
ConstTensorView ModelRunner::lead(const BatchPlan& plan, const Tap& tap) {
  plan.encode(message_);
  receive();
  return run(tap);
}

void ModelRunner::stop() {
  BatchPlan().encode(message_);
  receive();
}

void ModelRunner::follow(const Tap& tap) {
  for (;;) {
    receive();
    if (plan_.stop()) return;
    run(tap);
  }
}

// The same on every rank: rank 0, too, runs what can be read from the message.
void ModelRunner::receive() {
  ctx_.group.broadcast(message_, 0, Patience::unlimited);  // rank 0 may be busy with its users
  plan_.decode(message_);
  if (check_plans_) check_plans_equal(ctx_, plan_);
}
// [end lead_and_follow]

ConstTensorView ModelRunner::run(const Tap& tap) {
  plan_.sequence_rows(sequences_);
  logit_rows_.clear();
  std::int32_t row = 0;
  for (const PlannedSequence& s : plan_.sequences) {
    row += s.rows;
    for (std::int32_t i = row - s.logit_rows; i < row; ++i) logit_rows_.push_back(i);
  }
  const BatchView batch{plan_.positions, plan_.slot_mapping, sequences_};
  ctx_.device.begin_step(batch, plan_.token_ids, logit_rows_);
  const auto forward = [&] {
    return decoder_.forward(ctx_, {plan_.token_ids, batch, logit_rows_}, tap);
  };
  return tap ? forward() : graphs_.run(plan_, forward);
}

}  // namespace tp

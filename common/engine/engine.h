// The control plane: requests, scheduling and sampling, on rank 0. [introduced in chapter 06]
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "common/engine/model_runner.h"
#include "common/engine/request.h"
#include "common/engine/scheduler.h"

namespace tp {

// Ranks: rank 0 only, while the others follow() its runner.
class Engine {
 public:
  // Keeps logits of up to `kept_logit_bytes` bytes in the completions, for comparisons.
  // Errors: tp::Error (input) with all problems of the limits.
  Engine(ModelRunner& runner, const SchedulerLimits& limits, std::int64_t kept_logit_bytes = 0);

  // Why the request can never run, such as a prompt that does not fit the KV cache; empty if it can.
  std::string refusal(const Request& request) const;

  // Returns the number of the request; numbers count from 0. A request that can never run is
  // finished at once, with its error; the others are not concerned.
  std::int32_t add_request(Request request);

  // Ends a request before its time. Nothing happens if it is finished, or not known.
  void abort(std::int32_t id);

  // A token that a step has chosen.
  struct NewToken {
    std::int32_t id = 0;  // of the request
    std::int32_t token = 0;
  };
  // Runs one step of all ranks: some tokens of some requests. Returns the tokens that it chose; none
  // if it only ran parts of prompts. Does nothing if idle().
  // Errors: tp::Error (rank) if a rank is lost. A request whose logits are not finite is finished
  //         with an error that names the step; the others go on.
  const std::vector<NewToken>& step();
  // The requests that the last step finished.
  const std::vector<std::int32_t>& finished() const { return finished_; }
  bool idle() const { return unfinished_ == 0; }

  std::int32_t num_requests() const { return next_id_; }
  const Completion& completion(std::int32_t id) const { return requests_.at(id).done; }
  // Moves the completion of a finished request out of the engine.
  Completion take(std::int32_t id) { return std::move(requests_.at(id).done); }
  // The plan of the last step.
  const BatchPlan& plan() const { return plan_; }
  const Scheduler& scheduler() const { return scheduler_; }

  // Time in steps, shared out over the tokens that they ran.
  struct Times {
    double prefill_us = 0;  // prompt tokens, and all that is computed again after a preemption
    double decode_us = 0;   // tokens that were chosen one by one
    // Whole steps that only decoded, run one by one and replayed (step_graphs.h).
    double eager_us = 0, replayed_us = 0;
    std::int64_t eager_steps = 0, replayed_steps = 0;
  };
  const Times& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Active {
    Request request;
    Completion done;
    Clock::time_point arrived, first_token, last_token;
  };

  void find_largest(ConstTensorView logits);
  void choose_token(Active& active, std::int32_t id, ConstTensorView logits, std::int32_t largest);
  void finish(Active& active, std::int32_t id, FinishReason reason);

  ModelRunner& runner_;
  Scheduler scheduler_;
  std::int64_t kept_logit_bytes_;
  std::int32_t next_id_ = 0;
  std::int64_t unfinished_ = 0;
  std::map<std::int32_t, Active> requests_;
  BatchPlan plan_;
  std::vector<NewToken> new_tokens_;
  std::vector<std::int32_t> finished_;
  std::vector<std::int32_t> largest_;  // of each row of logits of the step; -1: not known
  Times times_;
};

}  // namespace tp

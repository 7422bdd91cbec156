#include "common/engine/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

double microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

Engine::Engine(ModelRunner& runner, const SchedulerLimits& limits, std::int64_t kept_logit_bytes)
    : runner_(runner),
      scheduler_(
          limits, runner.decoder().limits().num_blocks, runner.decoder().limits().block_size),
      kept_logit_bytes_(kept_logit_bytes) {}

std::string Engine::refusal(const Request& request) const {
  const auto tokens = static_cast<std::int64_t>(request.prompt_ids.size());
  const std::int64_t room = scheduler_.max_cached_tokens(), vocab = runner_.decoder().vocab_size();
  if (tokens == 0) return "the prompt has no tokens; give at least one";
  if (tokens > room)
    return fmt::format(
        "the prompt has {} tokens, but the KV cache holds {} of one sequence "
        "(--max-model-len, --kv-blocks)",
        tokens, room);
  for (const std::int32_t id : request.prompt_ids)
    if (id < 0 || id >= vocab)
      return fmt::format("token id {} is not in the vocabulary, 0 to {}", id, vocab - 1);
  if (request.max_new_tokens < 1)
    return fmt::format("max_tokens {}: must be 1 or more", request.max_new_tokens);
  const std::vector<std::string> problems = request.sampling.problems();
  return fmt::format("{}", fmt::join(problems, "; "));
}

std::int32_t Engine::add_request(Request request) {
  const std::int32_t id = next_id_++;
  const std::string why_not = refusal(request);
  Active& active = requests_[id];
  active = {std::move(request), {}, Clock::now(), {}};
  ++unfinished_;
  if (why_not.empty()) {
    scheduler_.add(id, active.request.prompt_ids);
  } else {
    active.done.error = why_not;
    finish(active, id, FinishReason::error);
  }
  return id;
}

void Engine::abort(std::int32_t id) {
  const auto found = requests_.find(id);
  if (found != requests_.end()) finish(found->second, id, FinishReason::aborted);
}

const std::vector<Engine::NewToken>& Engine::step() {
  new_tokens_.clear();
  finished_.clear();
  const Scheduler::Counters before = scheduler_.counters();
  const Clock::time_point start = Clock::now();
  if (!scheduler_.next(plan_)) return new_tokens_;
  const ConstTensorView logits = runner_.lead(plan_);
  find_largest(logits);
  std::int64_t row = 0;
  for (const PlannedSequence& sequence : plan_.sequences) {
    if (sequence.logit_rows == 0) continue;  // a part of a prompt
    choose_token(requests_.at(sequence.id), sequence.id, logits.rows_in({row, row + 1}),
                 largest_[static_cast<std::size_t>(row)]);
    ++row;
  }
  const double step_us = microseconds(Clock::now() - start);
  const auto tokens = static_cast<double>(plan_.token_ids.size());
  const auto decoded =
      static_cast<double>(scheduler_.counters().generated_tokens - before.generated_tokens);
  times_.decode_us += step_us * decoded / tokens;
  times_.prefill_us += step_us * (tokens - decoded) / tokens;
  const bool replayed = runner_.graphs().replayed();
  if (decoded == tokens) {
    (replayed ? times_.replayed_us : times_.eager_us) += step_us;
    ++(replayed ? times_.replayed_steps : times_.eager_steps);
  }
  return new_tokens_;
}

// Greedy requests need no logits on the host, only which is the largest.
void Engine::find_largest(ConstTensorView logits) {
  largest_.assign(static_cast<std::size_t>(logits.rows()), -1);
  const auto is_greedy = [&](const PlannedSequence& sequence) {
    return sequence.logit_rows > 0 && requests_.at(sequence.id).request.sampling.greedy();
  };
  if (std::any_of(plan_.sequences.begin(), plan_.sequences.end(), is_greedy))
    runner_.device().row_argmax(logits, largest_);
}

void Engine::choose_token(Active& active,
                          std::int32_t id,
                          ConstTensorView logits,
                          std::int32_t largest) {
  Completion& done = active.done;
  const SamplingParams& sampling = active.request.sampling;
  std::int32_t token = largest;
  const bool keeps = logits.bytes() <= kept_logit_bytes_;
  if (keeps || !sampling.greedy() || largest < 0) {
    Tensor on_host = runner_.device().download(logits);
    try {
      token = sample(on_host, sampling, done.ids.size());
    } catch (const Error& e) {
      done.error = fmt::format("step {}: {}", plan_.step, e.what());
      return finish(active, id, FinishReason::error);
    }
    if (keeps) {
      kept_logit_bytes_ -= logits.bytes();
      done.logits.push_back(std::move(on_host));
    }
  }
  done.ids.push_back(token);
  new_tokens_.push_back({id, token});
  active.last_token = Clock::now();
  if (done.ids.size() == 1) active.first_token = active.last_token;
  if (active.request.ends_with(token)) return finish(active, id, FinishReason::eos);
  if (static_cast<std::int64_t>(done.ids.size()) >= active.request.max_new_tokens)
    return finish(active, id, FinishReason::length);
  if (!scheduler_.append(id, token)) finish(active, id, FinishReason::context);
}

void Engine::finish(Active& active, std::int32_t id, FinishReason reason) {
  Completion& done = active.done;
  if (done.reason != FinishReason::none) return;
  done.reason = reason;
  finished_.push_back(id);
  if (reason != FinishReason::error || !done.ids.empty())
    done.preemptions = scheduler_.preemptions_of(id);
  scheduler_.remove(id);
  --unfinished_;
  if (done.ids.empty()) return;
  done.ttft_us = microseconds(active.first_token - active.arrived);
  const auto later = static_cast<double>(done.ids.size()) - 1;
  if (later > 0) done.tpot_us = microseconds(active.last_token - active.first_token) / later;
}

}  // namespace tp

#include "common/engine/scheduler.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

// Positions, rows and slots are 32-bit numbers in a plan.
constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::vector<std::string> SchedulerLimits::problems() const {
  std::vector<std::string> list;
  const auto within = [&](const char* option, std::int64_t value, std::int64_t least) {
    if (value < least || value > kLargest)
      list.push_back(fmt::format("{} {}: must be {} to {}", option, value, least, kLargest));
  };
  within("--max-num-seqs", max_num_seqs, 1);
  within("--max-num-batched-tokens", max_num_batched_tokens, 1);
  within("--chunked-prefill-size", chunked_prefill_size, 0);
  within("--max-model-len", max_model_len, 1);
  if (!list.empty()) return list;
  if (max_num_batched_tokens < max_num_seqs)
    list.push_back(fmt::format(
        "--max-num-batched-tokens {}: must be at least --max-num-seqs {}, so that every "
        "running sequence gets a token in each step",
        max_num_batched_tokens, max_num_seqs));
  if (chunked_prefill_size == 0 && max_num_batched_tokens < max_model_len)
    list.push_back(
        fmt::format("--max-num-batched-tokens {}: must be at least --max-model-len {} when prompts "
                    "are run whole (--chunked-prefill-size 0)",
                    max_num_batched_tokens, max_model_len));
  return list;
}

Scheduler::Scheduler(const SchedulerLimits& limits,
                     std::int64_t num_blocks,
                     std::int64_t block_size)
    : limits_(limits), blocks_(num_blocks, block_size) {
  const std::vector<std::string> problems = limits.problems();
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

std::int64_t Scheduler::max_cached_tokens() const {
  return std::min(limits_.max_model_len, blocks_.num_blocks() * blocks_.block_size());
}

void Scheduler::add(std::int32_t id, std::vector<std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 1 || count > max_cached_tokens())
    throw Error(ErrorKind::rank, fmt::format("seq {}: {} tokens; 1 to {} can be run", id, count,
                                             max_cached_tokens()));
  const auto [place, is_new] = sequences_.try_emplace(id);
  if (!is_new) throw Error(ErrorKind::rank, fmt::format("seq {} is there already", id));
  place->second = {id, std::move(tokens), count, 0, 0, 0, {}};
  waiting_.push_back(&place->second);
}

// [region next]
bool Scheduler::next(BatchPlan& plan) {
  plan.clear();
  budget_ = limits_.max_num_batched_tokens;
  preempted_ = false;
  run_generating(plan);
  run_prompts(plan);
  if (!preempted_) admit(plan);  // else the free blocks are needed by those that run
  if (plan.sequences.empty()) return false;
  plan.step = static_cast<std::uint64_t>(++counters_.steps);
  counters_.most_running = std::max(counters_.most_running, num_running());
  return true;
}

// One token each. The oldest first: it may take the blocks of the youngest, which may be itself.
void Scheduler::run_generating(BatchPlan& plan) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.missing() != 1) continue;
    bool has_place = false;
    while (i < running_.size() &&
           !(has_place = blocks_.grow(sequence.block_table, sequence.length())))
      preempt_youngest();
    if (has_place) run(sequence, 1, plan);
  }
}

// Prompts that have begun: they have all their blocks since they were admitted.
void Scheduler::run_prompts(BatchPlan& plan) {
  for (Sequence* sequence : running_)
    if (sequence->missing() > 0) run(*sequence, chunk_of(*sequence), plan);
}

void Scheduler::admit(BatchPlan& plan) {
  while (!waiting_.empty() && num_running() < limits_.max_num_seqs) {
    Sequence& sequence = *waiting_.front();
    const std::int64_t tokens = chunk_of(sequence);
    if (tokens == 0 || !blocks_.grow(sequence.block_table, sequence.length())) return;
    waiting_.pop_front();
    running_.push_back(&sequence);
    run(sequence, tokens, plan);
  }
}
// [end next]

void Scheduler::preempt_youngest() {
  Sequence& youngest = *running_.back();
  running_.pop_back();
  blocks_.release(youngest.block_table);
  youngest.computed = 0;
  ++youngest.preemptions;
  ++counters_.preemptions;
  waiting_.push_front(&youngest);
  preempted_ = true;
}

// How many of the sequence's missing tokens this step can take.
std::int64_t Scheduler::chunk_of(const Sequence& sequence) const {
  const std::int64_t missing = sequence.missing();
  if (limits_.chunked_prefill_size == 0) return missing <= budget_ ? missing : 0;
  return std::min({missing, budget_, limits_.chunked_prefill_size});
}

void Scheduler::run(Sequence& sequence, std::int64_t tokens, BatchPlan& plan) {
  if (tokens == 0) return;
  const std::int64_t begin = sequence.computed, end = begin + tokens;
  const bool wants_logits = end == sequence.length();
  const auto offset = static_cast<std::size_t>(begin);
  plan.add(sequence.id,
           std::span(sequence.tokens).subspan(offset, static_cast<std::size_t>(tokens)), begin,
           sequence.block_table, blocks_.block_size(), wants_logits ? 1 : 0);
  budget_ -= tokens;
  sequence.computed = end;

  const std::int64_t first_time = std::max(begin, sequence.most_computed);
  const auto count = [&](std::int64_t from, std::int64_t to) {
    return std::max<std::int64_t>(0, std::min(end, to) - std::max(first_time, from));
  };
  counters_.prompt_tokens += count(0, sequence.prompt_tokens);
  counters_.generated_tokens += count(sequence.prompt_tokens, end);
  counters_.recomputed_tokens += std::min(end, first_time) - begin;
  sequence.most_computed = std::max(sequence.most_computed, end);
}

bool Scheduler::append(std::int32_t id, std::int32_t token) {
  Sequence& sequence = sequences_.at(id);
  sequence.tokens.push_back(token);
  return sequence.length() <= max_cached_tokens();
}

void Scheduler::remove(std::int32_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  std::erase(running_, &found->second);
  std::erase(waiting_, &found->second);
  blocks_.release(found->second.block_table);
  sequences_.erase(found);
}

std::vector<BlockTable> Scheduler::block_tables() const {
  std::vector<BlockTable> tables;
  for (const auto& [id, sequence] : sequences_)
    if (!sequence.block_table.empty()) tables.push_back(sequence.block_table);
  return tables;
}

}  // namespace tp

#include "story.h"

#include <optional>
#include <span>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

struct Part {
  std::int32_t sequence;
  std::int64_t tokens;  // the next ones of the sequence
};
struct StoryStep {
  std::vector<Part> parts;
  std::optional<std::int32_t> ends;  // gives its blocks back after the step
  const char* what;
};

// [region story]
const std::vector<StoryStep> kStory{
    {{{kC, 5}}, {}, "C's prompt, all at once"},
    {{{kA, 3}}, kC, "A's prompt begins; C ends"},
    {{{kA, 4}}, {}, "A goes on, over a border"},
    {{{kB, 4}}, {}, "B's prompt begins"},
    {{{kA, 3}}, {}, "A's prompt is complete"},
    {{{kB, 7}}, {}, "B goes on"},
    {{{kA, 1}, {kB, 1}}, {}, "A generates, B goes on"},
    {{{kA, 1}, {kB, 3}}, {}, "A fills its block"},
    {{{kA, 1}, {kB, 1}}, kA, "A over a border; A ends"},
    {{{kB, 14}}, {}, "B gets A's blocks"},
    {{{kD, 3}}, kB, "D begins like B; B ends"},
    {{{kD, 1}}, kD, "D goes on, and ends"},
};
// [end story]

std::vector<std::int32_t> count_up(std::int32_t first, std::int32_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.push_back(first + i);
  return ids;
}

std::vector<StorySequence> make_sequences() {
  std::vector<StorySequence> sequences{{count_up(1, 13)}, {count_up(14, 30)}, {count_up(44, 5)}};
  StorySequence d{count_up(14, 8), 8};  // as B begins
  for (const std::int32_t id : count_up(49, 4)) d.token_ids.push_back(id);
  sequences.push_back(d);
  std::int64_t row = 0;
  for (StorySequence& s : sequences) {
    s.rows = {row, row + std::ssize(s.token_ids) - s.first_own};
    row = s.rows.end;
  }
  return sequences;
}

}  // namespace

const std::vector<StorySequence>& story_sequences() {
  static const std::vector<StorySequence> sequences = make_sequences();
  return sequences;
}

std::string letter_of(std::int32_t sequence) {
  return std::string(1, static_cast<char>('A' + sequence));
}

std::int64_t story_rows() {
  return story_sequences().back().rows.end;
}

std::string what_happens(std::uint64_t step) {
  return kStory.at(step - 1).what;
}

std::string block_table_of(const BatchPlan& plan, std::int32_t sequence) {
  std::vector<SequenceRows> rows;
  plan.sequence_rows(rows);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (plan.sequences[i].id == sequence)
      return fmt::format("[{}]", fmt::join(rows[i].block_table, " "));
  return "[]";
}

// [region control]
BatchPlan ControlPlane::next() {
  if (step_ > 0) {
    if (const auto ended = kStory[step_ - 1].ends)
      blocks_.release(sequences_[static_cast<std::size_t>(*ended)].table);
    references_.back().after = count_references();
  }
  BatchPlan plan;
  if (step_ == kStory.size()) return plan;
  plan.step = ++step_;
  for (const Part& part : kStory[step_ - 1].parts) run(part.sequence, part.tokens, plan);
  references_.push_back({count_references(), {}});
  return plan;
}

void ControlPlane::run(std::int32_t id, std::int64_t tokens, BatchPlan& plan) {
  const StorySequence& s = story_sequences()[static_cast<std::size_t>(id)];
  Running& now = sequences_[static_cast<std::size_t>(id)];
  if (now.computed < s.first_own) {  // these tokens are in the cache already
    now.table = blocks_.share(sequences_[kB].table, s.first_own);
    now.computed = s.first_own;
  }
  if (!blocks_.grow(now.table, now.computed + tokens))
    throw Error(ErrorKind::rank,
                fmt::format("step {}: no block is free for seq {}", plan.step, letter_of(id)));
  const auto new_tokens =
      std::span(s.token_ids)
          .subspan(static_cast<std::size_t>(now.computed), static_cast<std::size_t>(tokens));
  plan.add(id, new_tokens, now.computed, now.table, blocks_.block_size(), 0);
  now.computed += tokens;
}
// [end control]

std::vector<std::int32_t> ControlPlane::count_references() const {
  std::vector<std::int32_t> counts;
  for (std::int32_t block = 0; block < blocks_.num_blocks(); ++block)
    counts.push_back(blocks_.references(block));
  return counts;
}

}  // namespace tp

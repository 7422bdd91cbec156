// Decides, step by step, which sequences run and which tokens of them. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/engine/batch_plan.h"
#include "common/engine/block_manager.h"

namespace tp {

struct SchedulerLimits {
  std::int64_t max_num_seqs = 16;             // that run at the same time
  std::int64_t max_num_batched_tokens = 512;  // of all sequences in one step
  // Prompt tokens of one sequence in one step: longer prompts are run in chunks, beside the
  // sequences that are generating. 0: prompts are run whole.
  std::int64_t chunked_prefill_size = 512;
  std::int64_t max_model_len = 4096;  // tokens of one sequence in the cache

  // What is wrong with the values, one line each.
  std::vector<std::string> problems() const;
};

// Continuous batching, on rank 0, with integers only. First come, first served:
//
//   waiting --admission--> running --remove--> gone
//      ^                      |
//      +------ preemption ----+
//
// - Sequences that generate get one token each in every step, the oldest first; the rest of the
//   token budget goes to prompts, the oldest first.
// - A waiting sequence is admitted when the free blocks hold all its tokens; none is admitted
//   before an older one.
// - A sequence that needs another block when none is free takes the blocks of the youngest running
//   one. That one waits again, in front, and later runs all its tokens anew (recompute).
// So the oldest sequence always runs, and every sequence becomes the oldest.
// Source: Kwon et al. 2023 (vLLM), section 4.5; Agrawal et al. 2024 (Sarathi-Serve), chunked
// prefill; article 000, "Tensor parallel 对 Scheduler 的影响".
class Scheduler {
 public:
  // Errors: tp::Error (input) with all problems of the limits.
  Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks, std::int64_t block_size);

  // The most tokens of one sequence that can ever be in the cache. The last token of a text needs
  // no place there.
  std::int64_t max_cached_tokens() const;

  // A new sequence waits. Shapes: 1 to max_cached_tokens() tokens. Ids must not repeat.
  void add(std::int32_t id, std::vector<std::int32_t> tokens);

  // Plans the next step, and takes it as done. Returns false if no sequence waits or runs.
  bool next(BatchPlan& plan);

  // A token was chosen for a sequence whose logits the last step computed. Returns false if there
  // is no place for it in the cache: the sequence can only be removed.
  bool append(std::int32_t id, std::int32_t token);

  // The sequence is finished, or no longer wanted.
  void remove(std::int32_t id);

  struct Counters {
    std::int64_t steps = 0;
    std::int64_t prompt_tokens = 0;      // run for the first time
    std::int64_t generated_tokens = 0;   // chosen ones that were run to choose the next
    std::int64_t recomputed_tokens = 0;  // of both kinds, run again after a preemption
    std::int64_t preemptions = 0;
    std::int64_t most_running = 0;  // sequences at the same time
  };
  const Counters& counters() const { return counters_; }
  const BlockManager& blocks() const { return blocks_; }
  std::int64_t num_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  // How often the sequence was preempted.
  std::int64_t preemptions_of(std::int32_t id) const { return sequences_.at(id).preemptions; }
  // The block tables of all sequences that have one, for tests.
  std::vector<BlockTable> block_tables() const;

 private:
  struct Sequence {
    std::int32_t id = 0;
    std::vector<std::int32_t> tokens;  // the prompt and what was chosen after it
    std::int64_t prompt_tokens = 0;
    std::int64_t computed = 0;       // how many of them are in the cache
    std::int64_t most_computed = 0;  // ever
    std::int64_t preemptions = 0;
    BlockTable block_table;

    std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
    std::int64_t missing() const { return length() - computed; }
  };

  void run_generating(BatchPlan& plan);
  void run_prompts(BatchPlan& plan);
  void admit(BatchPlan& plan);
  void preempt_youngest();
  std::int64_t chunk_of(const Sequence& sequence) const;
  void run(Sequence& sequence, std::int64_t tokens, BatchPlan& plan);

  SchedulerLimits limits_;
  BlockManager blocks_;
  std::map<std::int32_t, Sequence> sequences_;
  std::vector<Sequence*> running_;  // the oldest first
  std::deque<Sequence*> waiting_;   // the oldest first; all are younger than the running ones
  std::int64_t budget_ = 0;         // tokens that the step can still take
  bool preempted_ = false;          // in this step
  Counters counters_;
};

}  // namespace tp

// What rank 0 tells all ranks to do in one step. [introduced in chapter 05]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/core/table.h"
#include "common/device/batch.h"

namespace tp {

// One sequence's part of a plan.
struct PlannedSequence {
  std::int32_t id = 0;          // of the request; other ranks than 0 only name it
  std::int32_t rows = 0;        // new tokens, at least one
  std::int32_t logit_rows = 0;  // of how many of them, counted from the last, logits are wanted
  std::int32_t blocks = 0;      // length of its block table
  friend bool operator==(const PlannedSequence&, const PlannedSequence&) = default;
};

// The new tokens of one step, and where their keys and values go: all that a rank needs besides its
// weights and its KV cache. Without sequences it means: no more steps.
// Source: article 000, "Tensor parallel 对 Engine 架构的影响" (input tokens, position ids, block
// table, slot mapping).
struct BatchPlan {
  std::uint64_t step = 0;  // counted from 1
  std::vector<PlannedSequence> sequences;
  std::vector<std::int32_t> token_ids;     // of all sequences, one behind the other
  std::vector<std::int32_t> positions;     // of each token in its sequence
  std::vector<std::int32_t> slot_mapping;  // of each token: block * block_size + place
  std::vector<std::int32_t> block_ids;     // the block tables, one behind the other

  bool stop() const { return sequences.empty(); }

  // Adds new tokens of a sequence whose first `first_position` tokens are in the cache.
  void add(std::int32_t id,
           std::span<const std::int32_t> new_tokens,
           std::int64_t first_position,
           std::span<const std::int32_t> block_table,
           std::int64_t block_size,
           std::int64_t logit_rows);
  // Forgets everything but keeps the memory.
  void clear();

  // As bytes, in the order of the processor: a header of 8 words (magic number, version, step in
  // two, numbers of sequences, tokens, block ids, and 0), then the vectors. Everything is a word of
  // 4 bytes: 32 + 16 * sequences + 12 * tokens + 4 * block ids bytes.
  void encode(std::vector<std::byte>& bytes) const;
  // Errors: tp::Error (rank) if the bytes are no plan of this version, or contradict themselves.
  void decode(std::span<const std::byte> bytes);

  // The rows of each sequence as a device wants them, replacing what is in `rows`. They point into
  // this plan.
  void sequence_rows(std::vector<SequenceRows>& rows) const;

  // The plan hash: 64 bits that depend on everything above.
  std::uint64_t fingerprint() const;

  // One row per sequence: what it runs and where its keys and values go.
  Table to_table(const std::string& name) const;

  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

// How a sequence is called in messages; empty: its number.
using SequenceName = std::function<std::string(std::int32_t id)>;

// The first field in which two plans differ, with both values, such as
// "step 3, seq 7: rank 0 block 3, rank 1 block 5"; empty if they are equal.
std::string first_difference(const BatchPlan& plan,
                             int rank,
                             const BatchPlan& other_plan,
                             int other_rank,
                             const SequenceName& name = {});

}  // namespace tp

// Four sequences, and what rank 0 decides about them step by step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/range.h"
#include "common/engine/batch_plan.h"
#include "common/engine/block_manager.h"

namespace tp {

inline constexpr std::int64_t kBlockSize = 4;  // tokens
inline constexpr std::int64_t kPoolBlocks = 9;
inline constexpr std::int64_t kVocab = 53;

// A sequence whose tokens are known beforehand: here nobody samples. Its id is its index.
struct StorySequence {
  std::vector<std::int32_t> token_ids;
  std::int64_t first_own = 0;  // the tokens before are those of B, and lie in B's blocks
  Range rows;                  // of its own tokens in the results
};
const std::vector<StorySequence>& story_sequences();
inline constexpr std::int32_t kA = 0, kB = 1, kC = 2, kD = 3;
std::string letter_of(std::int32_t sequence);
std::int64_t story_rows();  // own tokens of all sequences

// What happens in step 1, 2, ... in a few words.
std::string what_happens(std::uint64_t step);

// A sequence's block table in a plan, "[2 0 3]"; "[]" if it does not run.
std::string block_table_of(const BatchPlan& plan, std::int32_t sequence);

// How many tables hold each block: while a step runs, and when the sequences have gone that end
// with it.
struct BlockReferences {
  std::vector<std::int32_t> during, after;
};

// Rank 0's part: it alone knows the sequences and their tables.
class ControlPlane {
 public:
  ControlPlane(std::int64_t num_blocks, std::int64_t block_size)
      : blocks_(num_blocks, block_size) {}

  // The plan of the next step. One without sequences when the story is told.
  BatchPlan next();

  const std::vector<BlockReferences>& references() const { return references_; }  // of each step

 private:
  struct Running {
    std::int64_t computed = 0;  // tokens in the cache
    BlockTable table;
  };
  void run(std::int32_t id, std::int64_t tokens, BatchPlan& plan);
  std::vector<std::int32_t> count_references() const;

  BlockManager blocks_;
  std::vector<Running> sequences_{story_sequences().size()};
  std::size_t step_ = 0;
  std::vector<BlockReferences> references_;
};

}  // namespace tp

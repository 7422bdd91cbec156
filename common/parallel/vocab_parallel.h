// Embedding and output head, split by vocabulary. [introduced in chapter 06]
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/parallel/rank_context.h"
#include "common/parallel/shards.h"

namespace tp {

// One rank's rows of an embedding or head matrix. The rows behind the last id are zeros.
struct VocabParallelTable {
  Tensor rows_local;  // [rows per rank, hidden]
  VocabShard shard;

  // Copies this rank's rows, and nothing else.
  // Shapes: table [vocab_size, hidden].
  static VocabParallelTable load(const RankContext& ctx,
                                 ConstTensorView table,
                                 const VocabShard& shard,
                                 std::optional<DType> store_as = {});

  // y = the rows of the ids: each rank fills in the ids that it holds, the sum does the rest.
  // Shapes: y [ids.size(), hidden]. Moves: one all_reduce of y.
  // Errors: tp::Error if an id is negative or not in the vocabulary; a sum of zeros would be
  // silent.
  void embed(const RankContext& ctx,
             std::span<const std::int32_t> ids,
             TensorView y,
             std::string_view label) const;

  // The logits of this rank's ids, pads included.
  // Shapes: hidden [M, hidden] -> logits_local [M, rows per rank].
  void logits(const RankContext& ctx, ConstTensorView hidden, TensorView logits_local) const;

  // Which ids' logits each rank contributes: its rows, without the pads.
  std::vector<Range> valid_ranges(int tp_size) const;
};

}  // namespace tp

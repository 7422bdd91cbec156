// Which bytes of which file each rank reads. [introduced in chapter 06]
//
// The plan is made of the same ranges that the decoder's layers take (parallel/shards.h), so it can
// be shown and checked before, beside and after the loading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/tensor_split.h"
#include "common/model/weights.h"

namespace tp {

// Pieces of a file of equal length at equal distances: rows of a matrix are one piece, columns of it
// one piece in each row.
struct BytePieces {
  std::int64_t first = 0;   // where the first begins, from the begin of the file
  std::int64_t bytes = 0;   // of each
  std::int64_t count = 0;   // how many
  std::int64_t stride = 0;  // from the begin of one to the begin of the next; 0 for a single one

  std::int64_t all_bytes() const { return bytes * count; }
  friend bool operator==(const BytePieces&, const BytePieces&) = default;
};

// What a rank takes of a tensor.
struct PlannedShard {
  Range part;      // of the dimension that is split
  Shape local{0};  // as the rank holds it: with the pads of the vocabulary
  BytePieces pieces;
};

struct PlannedTensor {
  std::string name;
  Shape shape;
  DType dtype;           // in the file
  std::size_t file = 0;  // index into Weights::files().files()
  SplitAxis axis = SplitAxis::none;
  std::vector<PlannedShard> shards;  // of all ranks
};

struct LoadPlan {
  static constexpr std::int64_t kPageBytes = 4096;

  std::vector<PlannedTensor> tensors;  // in the order of the decoder

  static LoadPlan of(const Weights& weights, const ModelConfig& config, int tp_size);

  // The bytes of all shards of a rank, as they lie in the files.
  std::int64_t bytes(int rank) const;
  // The pages that hold at least one of these bytes. The system reads whole pages, so columns of a
  // matrix with short rows cost all of it.
  std::int64_t pages(int rank) const;
};

}  // namespace tp

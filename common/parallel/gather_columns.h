// Putting the column shards of a matrix together again. [introduced in chapter 01]
#pragma once

#include <string_view>

#include "common/core/tensor.h"
#include "common/parallel/rank_context.h"
#include "common/parallel/shards.h"

namespace tp {

// A gather puts whole parts one behind the other: with more than one row that is
// [all rows of rank 0 | all rows of rank 1], not the matrix. These functions gather into `staging`
// and then put every row together. Narrower shards travel padded to the widest one.
// Shapes: shard_local [M, columns of this rank], whole [M, columns]; the columns are split by
//         `ranges` (one per rank); staging [tp_size + 1, M * widest shard], contents do not matter.

// Every rank gets the matrix. Moves: one all_gather.
void all_gather_columns(const RankContext& ctx,
                        ConstTensorView shard_local,
                        const std::vector<Range>& ranges,
                        TensorView staging,
                        TensorView whole,
                        std::string_view label);

// Only rank `root` gets it. Moves: one gather.
void gather_columns(const RankContext& ctx,
                    ConstTensorView shard_local,
                    const std::vector<Range>& ranges,
                    int root,
                    TensorView staging,
                    TensorView whole,
                    std::string_view label);

// The staging that both need. Shapes: see above.
Shape gather_staging_shape(std::int64_t rows, const std::vector<Range>& ranges);

}  // namespace tp

// Launcher of the embedding kernel. [introduced in chapter 06]
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/core/range.h"
#include "common/device/cuda/device_rows.h"

namespace tp::cuda {

// Row i of y = row ids[i] of the whole table, or zeros if this shard does not hold that row.
// Shapes: ids [size.rows]; table: the rows `held` of the whole table, with size.columns columns.
// Moves: 4 bytes per element of y, and those of the rows that are held.
void embed(const std::int32_t* ids,
           WeightRows table,
           Range held,
           Rows y,
           Extent size,
           cudaStream_t stream);

}  // namespace tp::cuda

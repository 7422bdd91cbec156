// Launchers that pick the largest logits of each row. [introduced in chapter 06]
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "common/device/cuda/device_rows.h"

namespace tp::cuda {

inline constexpr std::int64_t kMaxTopK = 64;

// Where the results go. Shapes: values, columns [rows, k], contiguous.
struct Selected {
  float* values = nullptr;
  std::int32_t* columns = nullptr;
};

// Bytes for the candidates between the two stages. Aligned to 16 bytes.
std::int64_t selection_workspace_bytes(Extent size, std::int64_t k);

// The largest value of each row and its column; the lowest column where several are equal. A row
// with a NaN gives NaN and column -1; a row without columns gives -infinity and column -1.
// Shapes: x [rows, columns], columns < 2^31 -> out [rows, 1].
// Moves: 4 bytes per element.
void arg_max(ConstRows x, Extent size, void* workspace, Selected out, cudaStream_t stream);

// The k largest values of each row, in falling order, equal ones by rising column. NaN counts as
// larger than any number, so that it cannot hide. Places without a column left hold -infinity and
// -1.
// Shapes: x [rows, columns], columns < 2^31; 1 <= k <= kMaxTopK -> out [rows, k].
// Moves: 4 bytes per element.
// Errors: tp::Error (input) if k is not in this range.
void top_k(
    ConstRows x, Extent size, std::int64_t k, void* workspace, Selected out, cudaStream_t stream);

}  // namespace tp::cuda

#include <cstring>

#include "common/device/cuda/lanes.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/selection.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

// A value and its column in one number, so that the larger number is the better candidate: the
// value decides, and between equal ones the lower column. The order of floats becomes that of
// unsigned integers by flipping the sign bit of positive ones and all bits of negative ones.
using Key = unsigned long long;
constexpr Key kNoKey = 0;                    // below the key of -infinity
constexpr unsigned kNanOrder = 0xffffffffu;  // above that of +infinity

__device__ __forceinline__ Key key_of(float value, std::int64_t column) {
  value += 0.0f;  // -0 becomes 0: they are equal
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  unsigned order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (value != value) order = kNanOrder;
  return (static_cast<Key>(order) << 32) | (0xffffffffu - static_cast<unsigned>(column));
}

__device__ __forceinline__ bool is_nan(Key key) {
  return key >> 32 == kNanOrder;
}

__device__ __forceinline__ float value_of(Key key) {
  const auto order = static_cast<unsigned>(key >> 32);
  unsigned bits = (order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order;
  if (key == kNoKey) bits = 0xff800000u;  // -infinity
  if (is_nan(key)) bits = 0x7fc00000u;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

__device__ __forceinline__ std::int32_t column_of(Key key) {
  return key == kNoKey ? -1 : static_cast<std::int32_t>(0xffffffffu - static_cast<unsigned>(key));
}

__device__ __forceinline__ Key better(Key a, Key b) {
  return a > b ? a : b;
}

// The best key of a block, in thread 0. Shared memory: one key per warp.
__device__ __forceinline__ Key best_of_block(Key key) {
  TP_SHARED(Key, best_of_warp, kWarps);
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2)
    key = better(key, __shfl_xor_sync(kAllLanes, key, apart));
  if (threadIdx.x % kWarpSize == 0) best_of_warp[threadIdx.x / kWarpSize] = key;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int warp = 1; warp < kWarps; ++warp) key = better(key, best_of_warp[warp]);
  return key;
}

// ---- arg_max: the best of each chunk of a row, then the best of these

constexpr int kPack = 4;
constexpr int kPacksPerThread = 4;
constexpr std::int64_t kArgMaxChunk = kThreads * kPacksPerThread * kPack;  // columns

// Block (row, chunk) looks at kArgMaxChunk columns; a thread reads packs that are kThreads apart,
// all of them before it compares.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    arg_max_of_chunk_kernel(const float* x, std::int64_t x_stride, Extent size, Key* best) {
  constexpr int kPacks = static_cast<int>(kArgMaxChunk) / kThreads / kPack;
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = blockIdx.y * kArgMaxChunk + threadIdx.x * kPack;
  Pack<float, kPack> packs[kPacks];
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const std::int64_t column = first + pack * kThreads * kPack;
    if (column < size.columns) packs[pack] = load_pack<kPack>(x + row * x_stride + column);
  }
  Key key = kNoKey;
#pragma unroll
  for (int pack = 0; pack < kPacks; ++pack) {
    const std::int64_t column = first + pack * kThreads * kPack;
    if (column >= size.columns) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i) key = better(key, key_of(packs[pack].values[i], column + i));
  }
  key = best_of_block(key);
  if (threadIdx.x == 0) best[row * gridDim.y + blockIdx.y] = key;
}

// A block per row takes the best of its chunks.
__global__ void __launch_bounds__(kThreads) arg_max_of_row_kernel(const Key* best,
                                                                  std::int64_t chunks,
                                                                  float* values,
                                                                  std::int32_t* columns) {
  const std::int64_t row = blockIdx.x;
  Key key = kNoKey;
  for (std::int64_t chunk = threadIdx.x; chunk < chunks; chunk += kThreads)
    key = better(key, best[row * chunks + chunk]);
  key = best_of_block(key);
  if (threadIdx.x != 0) return;
  values[row] = value_of(key);
  columns[row] = is_nan(key) ? -1 : column_of(key);
}

// ---- top_k: a tournament; a round sorts chunks and keeps the k best of each, until one is left

constexpr std::int64_t kSortSize = 2048;  // keys

// Sorts `size` keys in shared memory, the best first: a bitonic network. In each step every thread
// compares pairs that are `apart` keys apart; runs of `run` keys are in order after their steps.
// Source: Batcher 1968, "Sorting networks and their applications". size: a power of two.
__device__ __forceinline__ void sort_best_first(Key* keys, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += kThreads) {
        const int left = pair / apart * apart * 2 + pair % apart;
        const bool best_first = (left & run) == 0;
        const Key a = keys[left], b = keys[left + apart];
        if ((a < b) == best_first) {
          keys[left] = b;
          keys[left + apart] = a;
        }
      }
    }
  }
  __syncthreads();
}

// Where one round of the tournament stands.
struct Round {
  std::int64_t entrants;  // keys, or columns, of each row
  std::int64_t k;
  int sort_size;  // of a chunk: a power of two, at most kSortSize
};

// Block (row, chunk) sorts the entrants of its chunk and writes the k best: as keys for the next
// round, or as the result if `values` is given. enter(i) is entrant i of the row.
template <class Enter>
__device__ __forceinline__ void play(
    const Round& round, const Enter& enter, Key* winners, float* values, std::int32_t* columns) {
  TP_SHARED(Key, keys, kSortSize);
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * round.sort_size;
  for (int i = static_cast<int>(threadIdx.x); i < round.sort_size; i += kThreads)
    keys[i] = first + i < round.entrants ? enter(first + i) : kNoKey;
  sort_best_first(keys, round.sort_size);
  for (int i = static_cast<int>(threadIdx.x); i < round.k; i += kThreads) {
    const Key key = i < round.sort_size ? keys[i] : kNoKey;
    if (values != nullptr) {
      values[row * round.k + i] = value_of(key);
      columns[row * round.k + i] = column_of(key);
    } else {
      winners[(row * gridDim.y + blockIdx.y) * round.k + i] = key;
    }
  }
}

// The first round reads the columns of x, 4 bytes each; neighbouring threads, neighbouring columns.
__global__ void __launch_bounds__(kThreads) first_round_kernel(const float* x,
                                                               std::int64_t x_stride,
                                                               Round round,
                                                               Key* winners,
                                                               float* values,
                                                               std::int32_t* columns) {
  const float* const row = x + blockIdx.x * x_stride;
  play(
      round, [&](std::int64_t i) { return key_of(row[i], i); }, winners, values, columns);
}

// The others read the winners of the round before.
__global__ void __launch_bounds__(kThreads) next_round_kernel(
    const Key* entrants, Round round, Key* winners, float* values, std::int32_t* columns) {
  const Key* const row = entrants + blockIdx.x * round.entrants;
  play(
      round, [&](std::int64_t i) { return row[i]; }, winners, values, columns);
}

std::int64_t chunks_of(std::int64_t entrants) {
  return std::max<std::int64_t>(1, divide_up(entrants, kSortSize));
}

int sort_size_for(std::int64_t entrants) {
  int size = 2;
  while (size < entrants && size < kSortSize) size *= 2;
  return size;
}

// gridDim.x may be large, .y not; so many chunks would be 134 million columns.
dim3 chunk_grid(std::int64_t rows, std::int64_t chunks) {
  require(chunks <= kMaxGridRows, "selection: a row has more columns than a grid can serve");
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(chunks));
}

}  // namespace

std::int64_t selection_workspace_bytes(Extent size, std::int64_t k) {
  const std::int64_t arg_max_keys = divide_up(size.columns, kArgMaxChunk);
  std::int64_t keys = 0;
  for (std::int64_t chunks = chunks_of(size.columns); chunks > 1; chunks = chunks_of(chunks * k))
    keys += chunks * k;
  return size.rows * std::max(arg_max_keys, keys) * static_cast<std::int64_t>(sizeof(Key));
}

void arg_max(ConstRows x, Extent size, void* workspace, Selected out, cudaStream_t stream) {
  if (size.rows == 0) return;
  auto* best = static_cast<Key*>(workspace);
  const std::int64_t chunks = divide_up(size.columns, kArgMaxChunk);
  if (chunks > 0) {
    with_pack<kPack>(size.columns % kPack == 0 && packable(kPack, x), [&](auto pack) {
      TP_LAUNCH((arg_max_of_chunk_kernel<pack()>), chunk_grid(size.rows, chunks), dim3(kThreads), 0,
                stream, x.data, x.stride, size, best);
    });
  }
  TP_LAUNCH(arg_max_of_row_kernel, dim3(static_cast<unsigned>(size.rows)), dim3(kThreads), 0,
            stream, best, chunks, out.values, out.columns);
}

void top_k(
    ConstRows x, Extent size, std::int64_t k, void* workspace, Selected out, cudaStream_t stream) {
  require(1 <= k && k <= kMaxTopK, "top_k: k is not in 1 to 64");
  if (size.rows == 0) return;
  auto* unused = static_cast<Key*>(workspace);
  const Key* entrants = nullptr;  // null: the columns of x
  for (std::int64_t count = size.columns;; count = chunks_of(count) * k) {
    const std::int64_t chunks = chunks_of(count);
    const bool last = chunks == 1;
    const Round round = {count, k, sort_size_for(count)};
    const dim3 grid = chunk_grid(size.rows, chunks);
    Key* const winners = last ? nullptr : unused;
    const Selected result = last ? out : Selected{};
    if (entrants == nullptr)
      TP_LAUNCH(first_round_kernel, grid, dim3(kThreads), 0, stream, x.data, x.stride, round,
                winners, result.values, result.columns);
    else
      TP_LAUNCH(next_round_kernel, grid, dim3(kThreads), 0, stream, entrants, round, winners,
                result.values, result.columns);
    if (last) return;
    entrants = winners;
    unused += size.rows * chunks * k;
  }
}

}  // namespace tp::cuda

#include <cmath>

#include "common/device/cuda/cache_read.h"
#include "common/device/cuda/lanes.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/prefill_attention.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kSide = 16;  // the threads of a block are a square
constexpr int kThreads = kSide * kSide;
constexpr int kPack = 4;

// The sizes of a block's tiles, for heads of up to kDims elements. Shared memory is what limits
// them.
template <int kDims>
struct TileSizes {
  static constexpr int kRows = kDims <= 128 ? 64 : 32;  // query rows of a block
  static constexpr int kKeys = kRows;                   // keys that it looks at together
  static constexpr int kRowsPerThread = kRows / kSide;
  static constexpr int kKeysPerThread = kKeys / kSide;
  static constexpr int kPacksPerThread = kDims / kPack / kSide;  // of a row of y
  // One pack more than needed per row: threads that read the same column of neighbouring rows then
  // find them in different banks.
  static constexpr int kStride = kDims + kPack;
  static constexpr int kWeightStride = kKeys + kPack;
  static constexpr std::size_t kSharedBytes =
      ((kRows + kKeys) * kStride + kRows * kWeightStride) * sizeof(float);
};

struct Sizes {
  std::int64_t block_stride;
  int block_size;
  int head_dim;
  int query_begin;  // first global query head of this rank
  int kv_begin;     // its first global KV head
  int group;        // query heads per KV head
  int window;       // tokens, 0 for none
  float scale;      // of a score, times kLog2E
};

// Widens a tile of the cache into shared memory. Behind the last token the last one is repeated:
// with a weight of 0, but 0 times what happens to lie there might be NaN. A thread moves pieces of
// 16 bytes; neighbouring threads neighbouring pieces, so that a token is read as one run of bytes.
template <int kDims, bool kWhole, class T>
__device__ __forceinline__ void load_tile(
    const T* pool, const CachedHead& cached, int first_token, int end_token, float* tile) {
  constexpr int kPieces = kDims / kPiece<T>;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < TileSizes<kDims>::kKeys * kPieces;
       i += kThreads) {
    const int token = i / kPieces, element = i % kPieces * kPiece<T>;
    const T* const head = pool + cached.offset(min(first_token + token, end_token - 1));
    store_pack(tile + token * TileSizes<kDims>::kStride + element,
               widen(load_piece<kWhole>(head, element, cached.head_dim)));
  }
}

// Block (tile, query head, part) serves Tile::kRows rows of one query head: part p of the tile that
// the host listed, p = 0 unless heads are large. It goes over the keys that its rows see, kKeys at
// a time.
//
// Thread (ty, tx) of the 16 x 16 has the rows ty * kRowsPerThread + r. Of each tile of keys it
// computes the scores of the keys tx + 16 k, with them corrects its rows' largest scores and sums
// (the 16 threads of a row are lanes of one warp and agree by shuffles), and adds to the packs tx +
// 16 p of its rows of y, which stay in registers. Shared memory, in f32: the rows' q, times scale;
// a tile of keys and, after that, of values in the same place; the weights of the tile's keys,
// which only the warp that wrote them reads.
// Moves: the keys and values that the rows see, 2 * head_dim elements per token, and q and y once.
template <class T, int kDims, bool kWhole>
__global__ void __launch_bounds__(kThreads, 2)
    prefill_attention_kernel(const float* q,
                             std::int64_t q_stride,
                             const T* keys,
                             const T* values,
                             const DeviceSequence* sequences,
                             const std::int32_t* block_tables,
                             const PrefillTile* tiles,
                             float* y,
                             std::int64_t y_stride,
                             Sizes sizes) {
  using Tile = TileSizes<kDims>;
  TP_DYNAMIC_SHARED(float, shared);
  float* const query = shared;                                      // [kRows, kStride]
  float* const cache_tile = query + Tile::kRows * Tile::kStride;    // [kKeys, kStride]
  float* const weights = cache_tile + Tile::kKeys * Tile::kStride;  // [kRows, kWeightStride]

  const PrefillTile listed = tiles[blockIdx.x];
  const DeviceSequence sequence = sequences[listed.sequence];
  const int first_row = listed.first_row + static_cast<int>(blockIdx.z) * Tile::kRows;
  const int listed_end = min(sequence.rows, listed.first_row + static_cast<int>(kPrefillTileRows));
  const int num_rows = min(Tile::kRows, listed_end - first_row);
  if (num_rows <= 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = (sizes.query_begin + head) / sizes.group - sizes.kv_begin;
  const CachedHead cached = {block_tables + sequence.table_begin, sizes.block_stride,
                             sizes.block_size, sizes.head_dim, kv_head};

  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const int my_rows = ty * Tile::kRowsPerThread;
  // Whether any row of this thread's warp, which has two values of ty, is served.
  const bool busy = ty / 2 * 2 * Tile::kRowsPerThread < num_rows;

  const std::int64_t batch_row = sequence.row + first_row;
  const std::int64_t head_begin = static_cast<std::int64_t>(head) * sizes.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kDims; i += kThreads) {
    const int row = i / kDims, element = i % kDims;
    const bool inside = row < num_rows && element < sizes.head_dim;
    query[row * Tile::kStride + element] =
        inside ? q[(batch_row + row) * q_stride + head_begin + element] * sizes.scale : 0.0f;
  }

  float largest[Tile::kRowsPerThread], total[Tile::kRowsPerThread];
  Pack<float, kPack> sums[Tile::kRowsPerThread][Tile::kPacksPerThread];
#pragma unroll
  for (int r = 0; r < Tile::kRowsPerThread; ++r) {
    largest[r] = kLowestScore;
    total[r] = 0;
#pragma unroll
    for (int p = 0; p < Tile::kPacksPerThread; ++p) sums[r][p] = {};
  }

  // Row r of the tile is at this position and sees the tokens from first_seen(r) up to it.
  const int first_position = sequence.first_position + first_row;
  const auto first_seen = [&](int row) {
    const int end = first_position + row + 1;
    return sizes.window > 0 && end > sizes.window ? end - sizes.window : 0;
  };
  const int end_token = first_position + num_rows;
  for (int token = first_seen(0); token < end_token; token += Tile::kKeys) {
    __syncthreads();  // q is there; the values of the tile before have been used
    load_tile<kDims, kWhole>(keys, cached, token, end_token, cache_tile);
    __syncthreads();
    if (busy) {
      float score[Tile::kRowsPerThread][Tile::kKeysPerThread] = {};
#pragma unroll 2
      for (int element = 0; element < kDims; element += kPack) {
        if (element >= sizes.head_dim) break;
        Pack<float, kPack> a[Tile::kRowsPerThread], b[Tile::kKeysPerThread];
#pragma unroll
        for (int r = 0; r < Tile::kRowsPerThread; ++r)
          a[r] = load_pack<kPack>(query + (my_rows + r) * Tile::kStride + element);
#pragma unroll
        for (int k = 0; k < Tile::kKeysPerThread; ++k)
          b[k] = load_pack<kPack>(cache_tile + (tx + kSide * k) * Tile::kStride + element);
#pragma unroll
        for (int r = 0; r < Tile::kRowsPerThread; ++r)
#pragma unroll
          for (int k = 0; k < Tile::kKeysPerThread; ++k)
#pragma unroll
            for (int i = 0; i < kPack; ++i)
              score[r][k] = fmaf(a[r].values[i], b[k].values[i], score[r][k]);
      }
#pragma unroll
      for (int r = 0; r < Tile::kRowsPerThread; ++r) {
        const auto sees = [&](int k) {
          const int at = token + tx + kSide * k;
          return first_seen(my_rows + r) <= at && at <= first_position + my_rows + r;
        };
        float top = largest[r];
#pragma unroll
        for (int k = 0; k < Tile::kKeysPerThread; ++k)
          if (sees(k)) top = fmaxf(top, score[r][k]);
        top = max_over_lanes<kSide>(top);
        float sum = 0;
#pragma unroll
        for (int k = 0; k < Tile::kKeysPerThread; ++k) {
          const float weight = sees(k) ? exp2f(score[r][k] - top) : 0.0f;
          weights[(my_rows + r) * Tile::kWeightStride + tx + kSide * k] = weight;
          sum += weight;
        }
        const float shrink = exp2f(largest[r] - top);
        total[r] = fmaf(total[r], shrink, sum_over_lanes<kSide>(sum));
        largest[r] = top;
#pragma unroll
        for (int p = 0; p < Tile::kPacksPerThread; ++p)
#pragma unroll
          for (int i = 0; i < kPack; ++i) sums[r][p].values[i] *= shrink;
      }
    }
    __syncthreads();  // the keys have been used
    load_tile<kDims, kWhole>(values, cached, token, end_token, cache_tile);
    __syncthreads();
    if (busy) {
#pragma unroll 2
      for (int key = 0; key < Tile::kKeys; key += kPack) {
        Pack<float, kPack> weight[Tile::kRowsPerThread];
#pragma unroll
        for (int r = 0; r < Tile::kRowsPerThread; ++r)
          weight[r] = load_pack<kPack>(weights + (my_rows + r) * Tile::kWeightStride + key);
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
#pragma unroll
          for (int p = 0; p < Tile::kPacksPerThread; ++p) {
            const auto value =
                load_pack<kPack>(cache_tile + (key + k) * Tile::kStride + (tx + kSide * p) * kPack);
#pragma unroll
            for (int r = 0; r < Tile::kRowsPerThread; ++r)
#pragma unroll
              for (int i = 0; i < kPack; ++i)
                sums[r][p].values[i] =
                    fmaf(weight[r].values[k], value.values[i], sums[r][p].values[i]);
          }
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < Tile::kRowsPerThread; ++r) {
    if (my_rows + r >= num_rows) continue;
    float* const row = y + (batch_row + my_rows + r) * y_stride + head_begin;
#pragma unroll
    for (int p = 0; p < Tile::kPacksPerThread; ++p) {
      const int element = (tx + kSide * p) * kPack;
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        if (element + i < sizes.head_dim) row[element + i] = sums[r][p].values[i] / total[r];
    }
  }
}

template <int kDims, bool kWhole, class T>
void launch_prefill(const PrefillAttention& args, const T* keys, Sizes sizes, cudaStream_t stream) {
  const auto kernel = prefill_attention_kernel<T, kDims, kWhole>;
  allow_shared_bytes(kernel, TileSizes<kDims>::kSharedBytes);
  const dim3 grid(static_cast<unsigned>(args.num_tiles),
                  static_cast<unsigned>(args.heads.query.size()),
                  static_cast<unsigned>(divide_up(kPrefillTileRows, TileSizes<kDims>::kRows)));
  TP_LAUNCH((prefill_attention_kernel<T, kDims, kWhole>), grid, dim3(kThreads),
            TileSizes<kDims>::kSharedBytes, stream, args.q.data, args.q.stride, keys,
            static_cast<const T*>(args.cache.values), args.sequences.sequences,
            args.sequences.block_tables, args.tiles, args.y.data, args.y.stride, sizes);
}

}  // namespace

void prefill_attention(const PrefillAttention& args, cudaStream_t stream) {
  const PagedKv& cache = args.cache;
  require(cache.head_dim <= kMaxHeadDim, "prefill_attention: head_dim is above 256");
  if (args.num_tiles == 0 || args.heads.query.size() == 0) return;
  const bool whole = has_whole_pieces(cache);
  const Sizes sizes = {.block_stride = cache.block_stride,
                       .block_size = static_cast<int>(cache.block_size),
                       .head_dim = static_cast<int>(cache.head_dim),
                       .query_begin = static_cast<int>(args.heads.query.begin),
                       .kv_begin = static_cast<int>(args.heads.kv.begin),
                       .group = static_cast<int>(args.heads.group),
                       .window = static_cast<int>(args.window),
                       .scale = kLog2E / std::sqrt(static_cast<float>(cache.head_dim))};
  with_elements(cache.keys, cache.dtype, [&](const auto* keys) {
    if (cache.head_dim <= 64)
      whole ? launch_prefill<64, true>(args, keys, sizes, stream)
            : launch_prefill<64, false>(args, keys, sizes, stream);
    else if (!whole)
      launch_prefill<256, false>(args, keys, sizes, stream);
    else if (cache.head_dim <= 128)
      launch_prefill<128, true>(args, keys, sizes, stream);
    else
      launch_prefill<256, true>(args, keys, sizes, stream);
  });
}

}  // namespace tp::cuda

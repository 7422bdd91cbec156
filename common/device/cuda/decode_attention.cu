#include <algorithm>
#include <cmath>

#include "common/device/cuda/cache_read.h"
#include "common/device/cuda/decode_attention.h"
#include "common/device/cuda/lanes.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerMultiprocessor = 3;  // so much the registers allow; f32 takes more: 2
constexpr int kHeads = 4;                    // query heads that a warp serves at a time
constexpr int kPerLane = 16;                 // elements of a head that a lane holds
constexpr int kSplitMultiple = 32;           // tokens

struct Sizes {
  std::int64_t block_stride;
  int block_size;
  int head_dim;
  int query_begin, query_end;  // global query heads of this rank
  int kv_begin;                // its first global KV head
  int group;                   // query heads per KV head
  int window;                  // tokens, 0 for none
  int splits;
  float scale;  // of a score, times kLog2E
};

// The tokens that split blockIdx.z of a sequence attends to.
struct Tokens {
  int begin, end;
};
__device__ __forceinline__ Tokens tokens_of_split(int position, const Sizes& sizes) {
  const int end = position + 1;
  const int begin = sizes.window > 0 && end > sizes.window ? end - sizes.window : 0;
  int part = (end - begin + sizes.splits - 1) / sizes.splits;
  part = (part + kSplitMultiple - 1) / kSplitMultiple * kSplitMultiple;
  const int first = begin + static_cast<int>(blockIdx.z) * part;
  return {min(first, end), min(first + part, end)};
}

// Where a partial result of query head `head` of sequence blockIdx.x lies in the workspace: first
// come the weighted sums of values [sequence, head, split, head_dim], then pairs of largest score
// and sum of weights [sequence, head, split, 2].
struct PartialPlace {
  float* sums;
  float* largest_and_total;
};
__device__ __forceinline__ PartialPlace partial_place(float* workspace,
                                                      int head,
                                                      int split,
                                                      const Sizes& sizes) {
  const std::int64_t heads = sizes.query_end - sizes.query_begin;
  const std::int64_t partial = (blockIdx.x * heads + head) * sizes.splits + split;
  const std::int64_t partials = gridDim.x * heads * sizes.splits;
  return {workspace + partial * sizes.head_dim,
          workspace + partials * sizes.head_dim + partial * 2};
}

// What a lane has gathered for the query heads of its warp: the largest score so far, the sum of
// exp2(score - largest), and the sum of the values with these weights, of its elements of the head.
struct Gathered {
  float largest[kHeads];
  float total[kHeads];
  float sums[kHeads][kPerLane];

  // Corrects head h for a new largest score.
  __device__ __forceinline__ void raise(int h, float score) {
    const float shrink = exp2f(largest[h] - score);
    largest[h] = score;
    total[h] *= shrink;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sums[h][i] *= shrink;
  }
};

// Block (sequence, KV head, split) serves all query heads of the KV head, for the tokens of the
// split.
//
// Lanes: kLanes neighbouring lanes hold one token's key, and then its value, kPerLane elements
// each: lane l has the pieces l, l + kLanes, ... of 16 bytes, so that a load instruction reads runs
// of kLanes * 16 bytes. A warp asks for the keys and the values of kTileTokens tokens, 4 KiB,
// before it uses the first.
// Warps: each serves kHeads query heads, whose sums stay in registers. Up to 4 query heads, every
// warp has its own tokens; up to 8, two warps share tokens, and up to 16, four: what the second
// reads lies in the L1 cache. More heads take more rounds.
// Shared memory: q of a round, times scale; and what the warps have gathered, added up at the end.
// Moves: keys and values of the split's tokens once, 2 * head_dim elements per token.
template <class T, int kLanes, bool kWhole>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? kBlocksPerMultiprocessor : 2)
    decode_attention_kernel(const float* q,
                            std::int64_t q_stride,
                            const T* keys,
                            const T* values,
                            const DeviceSequence* sequences,
                            const std::int32_t* block_tables,
                            float* workspace,
                            float* y,
                            std::int64_t y_stride,
                            Sizes sizes) {
  constexpr int kPieces = kPerLane / kPiece<T>;  // of a lane and token
  constexpr int kTokens = 4 / kPieces;           // that a lane has in flight: 8 loads of 16 bytes
  constexpr int kTokensPerLoad = kWarpSize / kLanes;
  constexpr int kTileTokens = kTokens * kTokensPerLoad;
  constexpr int kDims = kLanes * kPerLane;  // at least head_dim
  TP_SHARED(float, query, kWarps* kHeads* kDims);
  TP_SHARED(float, warp_sums, kWarps* kHeads* kDims);
  TP_SHARED(float, warp_largest, kWarps* kHeads);
  TP_SHARED(float, warp_total, kWarps* kHeads);

  const DeviceSequence sequence = sequences[blockIdx.x];
  if (sequence.rows == 0) return;
  const int kv_head = static_cast<int>(blockIdx.y);
  const CachedHead cached = {block_tables + sequence.table_begin, sizes.block_stride,
                             sizes.block_size, sizes.head_dim, kv_head};
  const Tokens tokens = tokens_of_split(sequence.first_position, sizes);

  // The local query heads of this KV head; a rank may have only some of a group.
  const int group_begin = (sizes.kv_begin + kv_head) * sizes.group;
  const int first_head = max(group_begin, sizes.query_begin) - sizes.query_begin;
  const int end_head = min(group_begin + sizes.group, sizes.query_end) - sizes.query_begin;
  const int num_heads = end_head - first_head;

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int teams = num_heads <= kHeads ? 1 : num_heads <= 2 * kHeads ? 2 : 4;
  const int team = warp % teams;                            // which heads
  const int phase = warp / teams, phases = kWarps / teams;  // which tokens
  const int token_in_load = lane / kLanes;
  const auto element_of = [&](int piece) {  // the first of a piece of this lane
    return (lane % kLanes + piece * kLanes) * kPiece<T>;
  };

  for (int round = first_head; round < end_head; round += teams * kHeads) {
    const int round_heads = min(teams * kHeads, end_head - round);
    for (int i = static_cast<int>(threadIdx.x); i < teams * kHeads * kDims; i += kThreads) {
      const int head = i / kDims, element = i % kDims;
      const float* const from = q + sequence.row * q_stride + (round + head) * sizes.head_dim;
      const bool inside = head < round_heads && element < sizes.head_dim;
      query[i] = inside ? from[element] * sizes.scale : 0.0f;
    }
    __syncthreads();

    Gathered gathered;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      gathered.largest[h] = kLowestScore;
      gathered.total[h] = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) gathered.sums[h][i] = 0;
    }

    for (int tile = tokens.begin + phase * kTileTokens; tile < tokens.end;
         tile += phases * kTileTokens) {
      Pack<T, kPiece<T>> key[kTokens][kPieces], value[kTokens][kPieces];
      bool seen[kTokens];
      std::int64_t offset[kTokens];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int token = tile + t * kTokensPerLoad + token_in_load;
        seen[t] = token < tokens.end;
        offset[t] = cached.offset(min(token, tokens.end - 1));
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
#pragma unroll
        for (int p = 0; p < kPieces; ++p)
          key[t][p] = load_piece<kWhole>(keys + offset[t], element_of(p), sizes.head_dim);
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
#pragma unroll
        for (int p = 0; p < kPieces; ++p)
          value[t][p] = load_piece<kWhole>(values + offset[t], element_of(p), sizes.head_dim);

      float score[kTokens][kHeads] = {};
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        Pack<float, kPiece<T>> wide[kTokens];
#pragma unroll
        for (int t = 0; t < kTokens; ++t) wide[t] = widen(key[t][p]);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          const auto part =
              load_pack<kPiece<T>>(query + (team * kHeads + h) * kDims + element_of(p));
#pragma unroll
          for (int t = 0; t < kTokens; ++t)
#pragma unroll
            for (int i = 0; i < kPiece<T>; ++i)
              score[t][h] = fmaf(part.values[i], wide[t].values[i], score[t][h]);
        }
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float largest = gathered.largest[h];
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          score[t][h] = sum_over_lanes<kLanes>(score[t][h]);
          if (seen[t]) largest = fmaxf(largest, score[t][h]);
        }
        gathered.raise(h, largest);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          score[t][h] = seen[t] ? exp2f(score[t][h] - largest) : 0.0f;  // now a weight
          gathered.total[h] += score[t][h];
        }
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          const auto wide = widen(value[t][p]);
#pragma unroll
          for (int h = 0; h < kHeads; ++h)
#pragma unroll
            for (int i = 0; i < kPiece<T>; ++i) {
              float& sum = gathered.sums[h][p * kPiece<T> + i];
              sum = fmaf(score[t][h], wide.values[i], sum);
            }
        }
    }

    // Lanes that hold the same elements add up their tokens; one of them hands over to the block.
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int apart = kLanes; apart < kWarpSize; apart *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, gathered.largest[h], apart);
        gathered.raise(h, fmaxf(gathered.largest[h], other));
        gathered.total[h] += __shfl_xor_sync(kAllLanes, gathered.total[h], apart);
#pragma unroll
        for (int i = 0; i < kPerLane; ++i)
          gathered.sums[h][i] += __shfl_xor_sync(kAllLanes, gathered.sums[h][i], apart);
      }
      const int slot = warp * kHeads + h;
      if (token_in_load == 0) {
#pragma unroll
        for (int i = 0; i < kPerLane; ++i)
          warp_sums[slot * kDims + element_of(i / kPiece<T>) + i % kPiece<T>] = gathered.sums[h][i];
      }
      if (lane == 0) {
        warp_largest[slot] = gathered.largest[h];
        warp_total[slot] = gathered.total[h];
      }
    }
    __syncthreads();

    // The warps that had the same heads are added up: a thread per element of a head.
    for (int i = static_cast<int>(threadIdx.x); i < round_heads * sizes.head_dim; i += kThreads) {
      const int head = i / sizes.head_dim, element = i % sizes.head_dim;
      const auto slot_of = [&](int p) {
        return (p * teams + head / kHeads) * kHeads + head % kHeads;
      };
      float largest = kLowestScore, total = 0, sum = 0;
      for (int p = 0; p < phases; ++p) largest = fmaxf(largest, warp_largest[slot_of(p)]);
      for (int p = 0; p < phases; ++p) {
        const float shrink = exp2f(warp_largest[slot_of(p)] - largest);
        total = fmaf(shrink, warp_total[slot_of(p)], total);
        sum = fmaf(shrink, warp_sums[slot_of(p) * kDims + element], sum);
      }
      if (sizes.splits == 1) {
        y[sequence.row * y_stride + (round + head) * sizes.head_dim + element] = sum / total;
        continue;
      }
      const PartialPlace place =
          partial_place(workspace, round + head, static_cast<int>(blockIdx.z), sizes);
      place.sums[element] = sum;
      if (element == 0) {
        place.largest_and_total[0] = largest;
        place.largest_and_total[1] = total;
      }
    }
    // No barrier: the next round fills `query`, which nobody reads now, and has one behind that.
  }
}

// Block (sequence, query head) adds up the splits: a thread per element of the head, if there are
// as many. Moves: splits * (head_dim + 2) * 4 bytes.
__global__ void __launch_bounds__(kThreads) combine_splits_kernel(const DeviceSequence* sequences,
                                                                  float* workspace,
                                                                  float* y,
                                                                  std::int64_t y_stride,
                                                                  Sizes sizes) {
  const DeviceSequence sequence = sequences[blockIdx.x];
  if (sequence.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const PartialPlace first = partial_place(workspace, head, 0, sizes);
  float largest = kLowestScore;
  for (int split = 0; split < sizes.splits; ++split)
    largest = fmaxf(largest, first.largest_and_total[2 * split]);
  for (int element = static_cast<int>(threadIdx.x); element < sizes.head_dim; element += kThreads) {
    float total = 0, sum = 0;
#pragma unroll 8
    for (int split = 0; split < sizes.splits; ++split) {
      const float shrink = exp2f(first.largest_and_total[2 * split] - largest);
      total = fmaf(shrink, first.largest_and_total[2 * split + 1], total);
      sum = fmaf(shrink, first.sums[split * sizes.head_dim + element], sum);
    }
    y[sequence.row * y_stride + head * sizes.head_dim + element] = sum / total;
  }
}

template <int kLanes, bool kWhole, class T>
void launch_decode(const DecodeAttention& args, const T* keys, Sizes sizes, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.num_sequences),
                  static_cast<unsigned>(args.cache.heads), static_cast<unsigned>(args.splits));
  TP_LAUNCH((decode_attention_kernel<T, kLanes, kWhole>), grid, dim3(kThreads), 0, stream,
            args.q.data, args.q.stride, keys, static_cast<const T*>(args.cache.values),
            args.sequences.sequences, args.sequences.block_tables,
            static_cast<float*>(args.workspace), args.y.data, args.y.stride, sizes);
}

}  // namespace

std::int64_t decode_splits(std::int64_t num_sequences,
                           std::int64_t kv_heads,
                           std::int64_t longest_context_tokens,
                           int multiprocessors) {
  constexpr std::int64_t kWaves = 2;            // of blocks, so that the last ones are not alone
  constexpr std::int64_t kTokensPerSplit = 64;  // at least: a split has a price
  const std::int64_t blocks = std::max<std::int64_t>(1, num_sequences * kv_heads);
  const std::int64_t wanted =
      divide_up(kWaves * kBlocksPerMultiprocessor * multiprocessors, blocks);
  const std::int64_t sensible = std::max<std::int64_t>(1, longest_context_tokens / kTokensPerSplit);
  return std::min(wanted, sensible);
}

std::int64_t decode_workspace_bytes(std::int64_t num_sequences,
                                    std::int64_t query_heads,
                                    std::int64_t head_dim,
                                    std::int64_t splits) {
  if (splits <= 1) return 0;
  return num_sequences * query_heads * splits * (head_dim + 2) *
         static_cast<std::int64_t>(sizeof(float));
}

void decode_attention(const DecodeAttention& args, cudaStream_t stream) {
  const PagedKv& cache = args.cache;
  require(cache.head_dim <= kMaxHeadDim, "decode_attention: head_dim is above 256");
  const std::int64_t query_heads = args.heads.query.size();
  if (args.num_sequences == 0 || query_heads == 0) return;
  const bool whole = has_whole_pieces(cache);
  const Sizes sizes = {.block_stride = cache.block_stride,
                       .block_size = static_cast<int>(cache.block_size),
                       .head_dim = static_cast<int>(cache.head_dim),
                       .query_begin = static_cast<int>(args.heads.query.begin),
                       .query_end = static_cast<int>(args.heads.query.end),
                       .kv_begin = static_cast<int>(args.heads.kv.begin),
                       .group = static_cast<int>(args.heads.group),
                       .window = static_cast<int>(args.window),
                       .splits = static_cast<int>(args.splits),
                       .scale = kLog2E / std::sqrt(static_cast<float>(cache.head_dim))};
  with_elements(cache.keys, cache.dtype, [&](const auto* keys) {
    if (!whole)
      launch_decode<16, false>(args, keys, sizes, stream);
    else if (cache.head_dim <= 4 * kPerLane)
      launch_decode<4, true>(args, keys, sizes, stream);
    else if (cache.head_dim <= 8 * kPerLane)
      launch_decode<8, true>(args, keys, sizes, stream);
    else
      launch_decode<16, true>(args, keys, sizes, stream);
  });
  if (args.splits == 1) return;
  const dim3 grid(static_cast<unsigned>(args.num_sequences), static_cast<unsigned>(query_heads));
  TP_LAUNCH(combine_splits_kernel, grid, dim3(kThreads), 0, stream, args.sequences.sequences,
            static_cast<float*>(args.workspace), args.y.data, args.y.stride, sizes);
}

}  // namespace tp::cuda

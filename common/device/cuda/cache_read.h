// How the attention kernels read the paged cache. [introduced in chapter 03]
#pragma once

#include <cstdint>

#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/paged_kv.h"
#include "cuda_language.h"

namespace tp::cuda {

// A thread reads a head in pieces of 16 bytes.
template <class T>
inline constexpr int kPiece = 16 / sizeof(T);  // elements

// One KV head of one sequence in the cache.
struct CachedHead {
  const std::int32_t* block_table;
  std::int64_t block_stride;
  int block_size;
  int head_dim;
  int head;  // local KV head

  // Where element 0 of the head's key, or value, of the token at `position` lies in the pool.
  __device__ __forceinline__ std::int64_t offset(int position) const {
    const int block = position / block_size, place = position - block * block_size;
    return block_table[block] * block_stride +
           (static_cast<std::int64_t>(head) * block_size + place) * head_dim;
  }
};

// A piece of a head from element `first` on. Behind the end of the head stand numbers that mean
// nothing: their q is 0, and their sums are not used. (To make them 0 costs two instructions each.)
// kWhole: head_dim is a multiple of kPiece, and all pieces are aligned.
template <bool kWhole, class T>
__device__ __forceinline__ Pack<T, kPiece<T>> load_piece(const T* head, int first, int head_dim) {
  if constexpr (kWhole) {
    return load_pack<kPiece<T>>(head + min(first, head_dim - kPiece<T>));
  } else {
    Pack<T, kPiece<T>> piece;
#pragma unroll
    for (int i = 0; i < kPiece<T>; ++i) piece.values[i] = head[min(first + i, head_dim - 1)];
    return piece;
  }
}

// Whether load_piece<true> can be used.
inline bool has_whole_pieces(const PagedKv& cache) {
  const std::size_t bytes = size_of(cache.dtype);
  const int piece = static_cast<int>(16 / bytes);
  return cache.head_dim % piece == 0 && packable(piece, cache.keys, cache.block_stride, bytes) &&
         packable(piece, cache.values, cache.block_stride, bytes);
}

// exp(x - y) = exp2(x' - y') for scores that were multiplied by this: exp2f is a few instructions.
inline constexpr float kLog2E = 1.44269504f;

// The score of no token. Finite, so that differences of scores are never NaN by themselves.
inline constexpr float kLowestScore = -3.402823466e38f;

}  // namespace tp::cuda

// __syncthreads, and what the 32 lanes of a warp do together: __syncwarp, shuffles, votes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/call_site.h"

namespace emulated_cuda {

enum class WarpOperation : std::uint8_t {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all
};

// What one lane brings to a warp operation.
struct LaneInput {
  WarpOperation operation;
  unsigned mask;        // the lanes that take part
  std::uint64_t value;  // of a shuffle; of a vote, whether the predicate holds
  int argument;         // source lane, distance or lane mask of a shuffle
  int width;            // of the segments in which a shuffle stays
};

// Waits for the lanes of the mask and returns this lane's answer. Errors: a report (see report.h)
// if a lane of the mask has returned or is in another operation, the mask leaves out the caller, or
// the source lane is not in the mask.
std::uint64_t warp_operation(const LaneInput& input, CallSite site);

// Waits for all threads of the block. Errors: a report if some wait at another line.
void block_barrier(CallSite site);

template <class T>
T shuffle(WarpOperation operation, unsigned mask, T value, int argument, int width, CallSite site) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "CUDA shuffles values of 4 or 8 bytes");
  LaneInput input{operation, mask, 0, argument, width};
  std::memcpy(&input.value, &value, sizeof(T));
  const std::uint64_t answer = warp_operation(input, site);
  std::memcpy(&value, &answer, sizeof(T));
  return value;
}

inline unsigned vote(WarpOperation operation, unsigned mask, int predicate, CallSite site) {
  return static_cast<unsigned>(warp_operation({operation, mask, predicate != 0, 0, 32}, site));
}

}  // namespace emulated_cuda

#define EMULATED_SITE ::emulated_cuda::CallSite site = ::emulated_cuda::CallSite::here()

inline void __syncthreads(EMULATED_SITE) {
  ::emulated_cuda::block_barrier(site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_SITE) {
  ::emulated_cuda::warp_operation({::emulated_cuda::WarpOperation::sync, mask, 0, 0, 32}, site);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32, EMULATED_SITE) {
  return ::emulated_cuda::shuffle(::emulated_cuda::WarpOperation::shuffle, mask, value, source_lane,
                                  width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATED_SITE) {
  return ::emulated_cuda::shuffle(::emulated_cuda::WarpOperation::shuffle_up, mask, value,
                                  static_cast<int>(distance), width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATED_SITE) {
  return ::emulated_cuda::shuffle(::emulated_cuda::WarpOperation::shuffle_down, mask, value,
                                  static_cast<int>(distance), width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMULATED_SITE) {
  return ::emulated_cuda::shuffle(::emulated_cuda::WarpOperation::shuffle_xor, mask, value,
                                  lane_mask, width, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return ::emulated_cuda::vote(::emulated_cuda::WarpOperation::ballot, mask, predicate, site);
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return static_cast<int>(
      ::emulated_cuda::vote(::emulated_cuda::WarpOperation::any, mask, predicate, site));
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return static_cast<int>(
      ::emulated_cuda::vote(::emulated_cuda::WarpOperation::all, mask, predicate, site));
}
#undef EMULATED_SITE

#include "common/comm/cuda/peer_staging.h"

#include <algorithm>

#include "common/device/cuda/check.h"

namespace tp::cuda {

namespace {

DeviceBytes allocate_device(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc of the memory between ranks");
  return DeviceBytes(static_cast<std::byte*>(data));
}

// Room for a piece of 16 bytes of every rank, and pieces that begin where 16 bytes can be read at
// once.
std::size_t usable_bytes(std::size_t bytes, int ranks) {
  return std::max(bytes, 16 * static_cast<std::size_t>(ranks)) / 16 * 16;
}

}  // namespace

PeerStaging::PeerStaging(int ranks, const PeerOptions& options) : options_(options) {
  options_.staging_bytes = usable_bytes(options.staging_bytes, ranks);
  for (int r = 0; r < ranks; ++r) of_rank_.push_back(std::make_unique<OfRank>());
}

PeerStaging::~PeerStaging() {
  // The ranks have gone, but one that failed has not waited for what it had queued.
  int current = 0;
  cudaGetDevice(&current);
  for (const auto& of_rank : of_rank_) {
    if (!of_rank->taken) continue;
    cudaSetDevice(of_rank->gpu);
    cudaDeviceSynchronize();
  }
  cudaSetDevice(current);
}

void PeerStaging::add(int rank, int gpu) {
  OfRank& mine = of(rank);
  mine.gpu = gpu;
  if (ranks() > 1)
    for (Buffer& buffer : mine.brought) buffer = make_buffer();
  if (options_.through_host) mine.inbox = allocate_device(options_.staging_bytes * of_rank_.size());
  mine.taken = make_event();
}

PeerStaging::Buffer PeerStaging::make_buffer() const {
  Buffer buffer;
  if (options_.through_host)
    buffer.pinned = allocate_pinned(options_.staging_bytes);
  else
    buffer.device = allocate_device(options_.staging_bytes);
  buffer.ready = make_event();
  return buffer;
}

}  // namespace tp::cuda

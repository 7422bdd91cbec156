// The memory through which ranks of one process exchange tensors. [introduced in chapter 01]
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "common/device/cuda/handles.h"

namespace tp::cuda {

struct PeerOptions {
  // The largest piece of a tensor that moves at once; larger tensors move in several.
  std::size_t staging_bytes = 4 << 20;
  // Pieces up to this size are summed in one shot, larger ones in two (peer_communicator.h). The
  // limit that vLLM has for 8 GPUs; where it should be depends on the links.
  std::size_t one_shot_bytes = 256 << 10;
  // Whether pieces travel through memory of the host: for GPUs that cannot read each other's
  // memory, or that get wrong data when they do (peer_self_test.h).
  bool through_host = false;
};

using DeviceBytes = std::unique_ptr<std::byte, Destroy<cudaFree>>;

// Ranks never read each other's tensors, only the copies that were put here. It belongs to no rank
// and is destroyed after all of them, so that a rank which leaves on an error frees nothing that
// another one still reads.
class PeerStaging {
 public:
  // A copy, and the event behind the work that writes it.
  struct Buffer {
    DeviceBytes device;
    PinnedBytes pinned;  // one of the two
    Event ready;
    std::byte* data() const { return device ? device.get() : pinned.get(); }
  };
  struct OfRank {
    int gpu = 0;
    std::array<Buffer, 2> brought;  // to even and to odd meetings
    Buffer outbox;                  // of sends; made by the first one
    Event taken;                    // behind the copies out of other ranks' outboxes
    DeviceBytes inbox;  // through_host: copies that kernels can read, staging_bytes per rank
  };

  PeerStaging(int ranks, const PeerOptions& options);
  ~PeerStaging();
  PeerStaging(const PeerStaging&) = delete;
  PeerStaging& operator=(const PeerStaging&) = delete;

  const PeerOptions& options() const { return options_; }
  int ranks() const { return static_cast<int>(of_rank_.size()); }

  // Makes a rank's part, on the GPU that is current. Ranks: each rank once, before the others use
  // it.
  void add(int rank, int gpu);
  Buffer make_buffer() const;
  OfRank& of(int rank) { return *of_rank_[static_cast<std::size_t>(rank)]; }

 private:
  PeerOptions options_;
  std::vector<std::unique_ptr<OfRank>> of_rank_;
};

}  // namespace tp::cuda

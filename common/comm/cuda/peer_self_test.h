// The start-up test of data that one GPU reads from another. [introduced in chapter 01]
//
// On some machines such reads return wrong data: the IOMMU or ACS sends them astray, or a driver
// allows what the hardware does not do. Nothing reports an error, the model only talks nonsense. So
// before a token is produced, known numbers travel between all pairs of GPUs.
// Source: NVIDIA, NCCL user guide, "Troubleshooting", about PCI Access Control Services (ACS).
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/cuda/peer_access.h"

namespace tp::cuda {

// Called again and again while a transfer is under way; throws when it has taken too long.
using StillWaiting = std::function<void()>;

// A way in which data gets from one GPU to another.
struct PeerTransfer {
  std::string name;  // "a copy"
  // What GPU pair.to has in the end, where `before` was, when it gets `sent` from GPU pair.from.
  std::function<std::vector<float>(GpuPair pair,
                                   std::span<const float> sent,
                                   std::span<const float> before,
                                   const StillWaiting& still_waiting)>
      run;
};

// Copies by the GPUs' copy engines, and reads by a kernel: the two ways of PeerCommunicator.
// The GPUs must have access to each other (open_access).
std::vector<PeerTransfer> peer_transfers();

// Sends, over each pair of the list and in every way, numbers that tell where they come from:
// element i of the r-th GPU is r * 1000003 + i, as f32 exact up to r = 15. Returns what is wrong,
// one line per pair and way, with the GPUs and both values; empty if nothing is. After a transfer
// that does not end within the time-out nothing else is tried.
std::vector<std::string> peer_self_test(const std::vector<int>& gpus,
                                        const std::vector<PeerTransfer>& transfers,
                                        std::chrono::milliseconds timeout);

// What to do when the test finds something.
std::string peer_advice();

}  // namespace tp::cuda

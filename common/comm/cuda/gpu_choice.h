// On which GPUs the ranks run and how they are connected, as a function of what was asked for and
// of what is there. [introduced in chapter 01]
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/cuda/peer_access.h"
#include "common/comm/cuda/visible_gpus.h"
#include "common/core/options.h"

namespace tp::cuda {

// What is known of the ways between GPUs.
struct PeerFindings {
  std::vector<GpuPair> without_access;
  std::vector<std::string> wrong_data;  // of peer_self_test
};

// What a choice depends on beside the options.
struct Circumstances {
  VisibleGpus visible;
  bool has_nccl = false;
  bool nccl_without_peer_access = false;  // NCCL_P2P_DISABLE=1
  // Tries the ways between these GPUs; called only if they matter.
  std::function<PeerFindings(const std::vector<int>& gpus)> try_peers;
};

struct GpuChoice {
  std::string comm;  // "nccl", "peer", or "peer-staged": peer, with copies through the host
  std::string text;  // for people: "cuda (NVIDIA H200), 2 ranks on 2 GPUs by NCCL"
  std::string warning;
};

// Rank r runs on GPU r modulo their number, so that each rank has its own as long as there are
// enough.
int gpu_of_rank(int rank, std::size_t gpus);

// Whether the program is to run on GPUs: when --device or --comm asks for it, else if there is a
// real one.
bool wants_gpus(const Options& options, const VisibleGpus& visible);

// With --comm auto: NCCL if there is a GPU for each of several ranks, else peer.
// Errors: tp::Error (device) if no GPU is visible or NCCL is missing; tp::Error (input) if there
//         are too few GPUs for NCCL or the list of visible ones is wrong; tp::Error (rank) if GPUs
//         that were to read each other's memory get wrong data.
GpuChoice choose_gpus(const Options& options, const Circumstances& circumstances);

}  // namespace tp::cuda

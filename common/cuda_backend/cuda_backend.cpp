// What programs are linked with where there is CUDA, for real GPUs or for emulated ones.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/comm/cuda/gpu_choice.h"
#include "common/comm/cuda/nccl.h"
#include "common/comm/cuda/peer_access.h"
#include "common/comm/cuda/peer_communicator.h"
#include "common/comm/cuda/peer_self_test.h"
#include "common/comm/cuda/peer_staging.h"
#include "common/comm/cuda/visible_gpus.h"
#include "common/core/error.h"
#include "common/core/platform.h"
#include "common/device/cuda/cuda_device.h"
#include "common/parallel/backend.h"
#include "common/parallel/run_ranks.h"

namespace tp {

namespace {

using namespace cuda;

// How long a test transfer of a few kilobytes may take, at most.
constexpr std::chrono::seconds kTransferTimeout{5};

PeerFindings try_peers(const std::vector<int>& gpus, std::chrono::milliseconds timeout) {
  PeerFindings findings;
  const std::vector<GpuPair> pairs = pairs_of(gpus);
  for (const GpuPair pair : pairs)
    if (!can_read(pair)) findings.without_access.push_back(pair);
  if (!findings.without_access.empty()) return findings;
  for (const GpuPair pair : pairs) open_access(pair);
  findings.wrong_data = peer_self_test(gpus, peer_transfers(), timeout);
  return findings;
}

// The same, tried once: the ways between GPUs do not change while a program runs.
PeerFindings peer_findings(const std::vector<int>& gpus, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static std::map<std::vector<int>, PeerFindings> tried;
  const std::lock_guard lock(mutex);
  const auto found = tried.find(gpus);
  if (found != tried.end()) return found->second;
  return tried[gpus] =
             try_peers(gpus, std::min<std::chrono::milliseconds>(timeout, kTransferTimeout));
}

bool nccl_does_without_peer_access() {
  const char* const disabled = std::getenv("NCCL_P2P_DISABLE");
  return disabled != nullptr && std::string_view(disabled) == "1";
}

std::vector<int> gpus_of(int ranks, std::size_t visible) {
  std::vector<int> gpus;
  for (int rank = 0; rank < ranks && static_cast<std::size_t>(rank) < visible; ++rank)
    gpus.push_back(gpu_of_rank(rank, visible));
  return gpus;
}

// Whether the ranks of a run must copy through the host. A program may run more ranks than the
// platform was chosen for, to compare them, and so come to GPUs that have not been tried yet.
// Errors: tp::Error (rank) if GPUs get wrong data from each other.
bool must_go_through_host(const Launch& launch, const std::vector<int>& gpus) {
  if (launch.comm == "peer-staged") return true;
  if (launch.comm == "nccl" && nccl_does_without_peer_access()) return true;
  const PeerFindings findings = peer_findings(gpus, launch.timeout);
  if (!findings.wrong_data.empty())
    throw Error(ErrorKind::rank,
                fmt::format("{}\n{}", fmt::join(findings.wrong_data, "\n"), peer_advice()));
  return !findings.without_access.empty();
}

// GPUs for the ranks of one run, and the memory between them.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const Launch& launch, std::size_t gpus) : launch_(launch), gpus_(gpus) {
    // NCCL wants a GPU for each rank. More ranks than that share the GPUs, as with peer.
    if (launch.comm == "nccl" && static_cast<std::size_t>(launch.tp_size) <= gpus) return;
    PeerOptions options;
    options.through_host = must_go_through_host(launch, gpus_of(launch.tp_size, gpus));
    staging_ = std::make_unique<PeerStaging>(launch.tp_size, options);
  }

  std::unique_ptr<Device> make_device(int rank) override {
    CudaDeviceOptions options;
    options.gpu = gpu_of_rank(rank, gpus_);
    options.memory_utilization = launch_.gpu_memory_utilization;
    options.ranks_on_gpu = 0;
    for (int other = 0; other < launch_.tp_size; ++other)
      if (gpu_of_rank(other, gpus_) == options.gpu) ++options.ranks_on_gpu;
    return make_cuda_device(options);
  }

  std::unique_ptr<Communicator> make_communicator(Device& device, Group& group) override {
    auto& mine = dynamic_cast<CudaDevice&>(device);
    if (staging_ == nullptr) return make_nccl_communicator(mine, group, launch_.timeout);
    return std::make_unique<PeerCommunicator>(*staging_, mine, group, launch_.timeout);
  }

 private:
  Launch launch_;
  std::size_t gpus_;
  std::unique_ptr<PeerStaging> staging_;
};

}  // namespace

Platform choose_platform(const Options& options) {
  Circumstances circumstances;
  if (options.device != "cpu") circumstances.visible = look_for_gpus();
  if (!wants_gpus(options, circumstances.visible)) return cpu_platform(options);
  circumstances.has_nccl = nccl_version().has_value();
  circumstances.nccl_without_peer_access = nccl_does_without_peer_access();
  circumstances.try_peers = [&](const std::vector<int>& gpus) {
    return peer_findings(gpus, Launch::from(options).timeout);
  };
  const GpuChoice choice = choose_gpus(options, circumstances);
  if (!choice.warning.empty())
    std::fputs(fmt::format("warning: {}\n", choice.warning).c_str(), stderr);
  return {"cuda", choice.comm, choice.text};
}

std::unique_ptr<Backend> make_cuda_backend(const Launch& launch) {
  const std::size_t gpus = look_for_gpus().gpus.size();
  if (gpus == 0) throw Error(ErrorKind::device, "device cuda: no GPU visible; use the device cpu");
  return std::make_unique<CudaBackend>(launch, gpus);
}

}  // namespace tp

#include "tests/comm/cuda/on_gpu_ranks.h"

#include <cuda_runtime_api.h>

#include "common/comm/cuda/nccl.h"
#include "common/comm/cuda/peer_access.h"
#include "common/comm/thread_group.h"
#include "common/device/cuda/check.h"

using namespace tp;
using namespace tp::cuda;

std::vector<Connection> connections() {
  constexpr std::size_t kStaging = 64 << 10;
  const auto peer = [](const char* name, std::size_t one_shot_bytes, bool through_host,
                       bool one_gpu) {
    return Connection{name, false, {kStaging, one_shot_bytes, through_host}, one_gpu};
  };
  return {peer("one GPU, one shot", kStaging, false, true),
          peer("one GPU, two shots", 0, false, true),
          peer("GPUs, one shot", kStaging, false, false),
          peer("GPUs, two shots", 0, false, false),
          peer("GPUs, through the host, one shot", kStaging, true, false),
          peer("GPUs, through the host, two shots", 0, true, false),
          Connection{"NCCL", true, {}, false}};
}

bool runs_here(const Connection& connection, int ranks) {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  return gpus >= (connection.one_gpu ? 1 : ranks);
}

std::vector<RankEnd> on_gpu_ranks(const Connection& connection,
                                  int ranks,
                                  std::chrono::milliseconds timeout,
                                  const GpuBody& body,
                                  const std::function<void(int rank)>& before) {
  std::vector<int> gpus;
  for (int r = 0; r < ranks; ++r) gpus.push_back(connection.one_gpu ? 0 : r);
  if (!connection.nccl && !connection.peer.through_host)
    for (const GpuPair pair : pairs_of(gpus)) open_access(pair);
  PeerStaging staging(ranks, connection.peer);  // outlives the ranks
  return on_threads(ranks, timeout, [&](ThreadHub& hub, int rank) {
    ThreadGroup group(hub, rank);
    CudaDeviceOptions options;
    options.gpu = gpus[static_cast<std::size_t>(rank)];
    CudaDevice device(options);
    before(rank);
    std::unique_ptr<Communicator> comm;
    if (connection.nccl)
      comm = make_nccl_communicator(device, group, timeout);
    else
      comm = std::make_unique<PeerCommunicator>(staging, device, group, timeout);
    body({*comm, device, group});
    device.synchronize();
  });
}

#include "common/comm/cuda/peer_access.h"

#include <set>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/device/cuda/check.h"

namespace tp::cuda {

std::vector<GpuPair> pairs_of(const std::vector<int>& gpus) {
  const std::set<int> different(gpus.begin(), gpus.end());
  std::vector<GpuPair> pairs;
  for (const int from : different)
    for (const int to : different)
      if (from != to) pairs.push_back({from, to});
  return pairs;
}

bool can_read(GpuPair pair) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, pair.to, pair.from), "cudaDeviceCanAccessPeer");
  return can != 0;
}

void open_access(GpuPair pair) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  check(cudaSetDevice(pair.to), "cudaSetDevice");
  const cudaError_t result = cudaDeviceEnablePeerAccess(pair.from, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // it is no error here
  else
    check(result,
          fmt::format("cudaDeviceEnablePeerAccess of GPU {} to GPU {}", pair.to, pair.from));
  check(cudaSetDevice(current), "cudaSetDevice");
}

}  // namespace tp::cuda

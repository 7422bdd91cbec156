// Which GPUs can read each other's memory. [introduced in chapter 01]
#pragma once

#include <string>
#include <vector>

namespace tp::cuda {

// A way between two different GPUs: data of `from` is read by `to`.
struct GpuPair {
  int from = 0;
  int to = 0;
  friend bool operator==(const GpuPair&, const GpuPair&) = default;
};

// Every pair of different GPUs of the list, in both directions. GPUs that stand in it twice count
// once.
std::vector<GpuPair> pairs_of(const std::vector<int>& gpus);

// Whether the hardware and the driver let GPU `to` read memory of GPU `from`.
bool can_read(GpuPair pair);

// Lets the kernels of GPU `to` read memory of GPU `from`, until the process ends.
void open_access(GpuPair pair);

}  // namespace tp::cuda

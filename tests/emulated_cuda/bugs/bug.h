// A planted bug, and what most of them need.
#pragma once

#include <vector>

#include "../test_kernels.h"

namespace emulated_test {

// The name is that of the function, which does something with the bug, or right. It returns whether the numbers are
// right; what else can happen is the point.
struct Bug {
  const char* name;
  bool (*run)(bool wrong);
};

std::vector<Bug> kernel_bugs();
std::vector<Bug> memory_bugs();
std::vector<Bug> stream_bugs();
std::vector<Bug> gemm_bugs();
std::vector<Bug> collective_bugs();
std::vector<Bug> graph_bugs();

using Floats = std::vector<float>;

// Zeros in device memory, ready before anything else starts.
struct Zeros : DeviceArray<float> {
  Zeros(const TestStream& stream, std::size_t count) : DeviceArray(stream, Floats(count, 0.0f)) {
    stream.synchronize();
  }
};

}  // namespace emulated_test

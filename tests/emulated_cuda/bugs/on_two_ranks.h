// Two ranks that are threads, each with a device of its own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include <nccl.h>

#include "bug.h"

namespace emulated_test {

inline void check(ncclResult_t result) {
  if (result != ncclSuccess) {
    throw std::runtime_error(ncclGetErrorString(result));
  }
}

struct Rank {
  int rank;
  const TestStream& stream;
  ncclComm_t comm;
  float* data;  // 64 floats of ones
};

// Runs the body on two ranks, which are threads; then every rank's data must be `right`.
inline bool on_ranks(const Floats& right, const std::function<void(const Rank&)>& body) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  bool all_right[2] = {false, false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const TestStream stream(rank);
        ncclComm_t comm = nullptr;
        check(ncclCommInitRank(&comm, 2, id, rank));
        const DeviceArray<float> data(stream, Floats(64, 1.0f));
        body({rank, stream, comm, data.data()});
        all_right[rank] = data.values() == right;
        check(ncclCommDestroy(comm));
      } catch (const std::exception& error) {
        std::printf("REFUSED: %s\n", error.what());
        std::fflush(stdout);
        std::_Exit(3);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return all_right[0] && all_right[1];
}

inline ncclResult_t sum(const Rank& self, std::size_t count) {
  return ncclAllReduce(self.data, self.data, count, ncclFloat, ncclSum, self.comm, self.stream);
}

}  // namespace emulated_test

// The ranks of one NCCL communicator, and what they have told each other so far.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nccl_call.h"
#include "sanitizers.h"
#include "stream.h"

namespace emulated_cuda {
struct Clique;
}

// A rank's handle. The stream mutex guards all of it.
struct ncclComm {
  std::shared_ptr<emulated_cuda::Clique> clique;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool aborted = false;
  bool used = false;      // a call has been made
  bool announced = true;  // what a non-blocking call began has been asked for
  ncclResult_t async_error = ncclSuccess;
  std::string last_error;

  std::uint64_t num_collectives = 0;  // that have their place in a stream
  std::string last_call = "none";
  std::map<emulated_cuda::Stream*, int> streams;  // with calls of this rank that are not done
};

namespace emulated_cuda {

// One collective: the ranks that have arrived, and what they called.
struct Round {
  std::vector<NcclCall> calls;  // of rank r, if has_arrived[r]
  std::vector<bool> has_arrived;
  int num_arrived = 0;
  bool done = false;
  OrderPoint entered;
  OrderPoint left;
};

// One side of a send and a receive that waits for the other.
struct Message {
  NcclCall call;
  bool done = false;
  OrderPoint entered;
  OrderPoint left;
};

struct Clique {
  int num_ranks = 0;
  std::vector<std::shared_ptr<ncclComm>> ranks;  // null until they have joined
  int num_joined = 0;
  std::string refusal;  // why the communicator cannot be, once all have joined
  std::map<std::uint64_t, std::shared_ptr<Round>> rounds;
  // By (from, to): sends without a receive, and receives without a send.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> sends;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> receives;

  bool is_complete() const { return num_joined == num_ranks; }
};

// Calls of one rank that run together: one call, or those of a group.
std::unique_ptr<Work> make_nccl_work(std::shared_ptr<ncclComm> comm, std::vector<NcclCall> calls);

}  // namespace emulated_cuda

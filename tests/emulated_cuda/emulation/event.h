// Events: marks in a stream that other streams, or the host, wait for.
#pragma once

#include <memory>
#include <set>

#include "capture.h"
#include "stream.h"

namespace emulated_cuda {

// One cudaEventRecord. The event may be recorded again while somebody still waits for this.
struct EventRecord {
  Stream* stream = nullptr;
  bool done = false;
  double time_ms = 0;
  OrderPoint order;

  // Of a record in a capturing stream: nodes of the graph stand for it, and it is never done.
  std::shared_ptr<Capture> capture;
  std::set<std::size_t> nodes;
};

}  // namespace emulated_cuda

struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::shared_ptr<emulated_cuda::EventRecord> record;  // the last one, null before the first
};

// Stream capture: what is put into capturing streams becomes the nodes of a graph instead of
// running.
//
// A stream captures from cudaStreamBeginCapture on, and every other stream from the moment it waits
// for an event that was recorded in a capturing one. All of them must be joined again, by events,
// before cudaStreamEndCapture.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "work.h"

namespace emulated_cuda {

struct GraphNode {
  std::unique_ptr<Work> work;
  std::size_t lane;             // number of the stream it was captured from
  std::set<std::size_t> after;  // nodes that must be done before
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<int> lane_devices;
};

// One capture sequence. The stream mutex guards it.
struct Capture {
  Stream* origin = nullptr;
  std::thread::id thread;
  bool active = true;
  bool invalid = false;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();

  struct Member {
    std::size_t lane;
    std::set<std::size_t> last;  // the nodes that its next one comes after
  };
  std::map<Stream*, Member> members;

  Member& join(Stream& stream);
};

// If the stream captures: the work becomes a node of its graph, and this is true. `result` is then
// what the call returns: cudaErrorStreamCaptureInvalidated if something illegal was done before.
bool capture_work(Stream& stream, std::unique_ptr<Work>& work, cudaError_t& result);

// For calls that make no sense on a capturing stream, like a synchronisation: the error, and the
// capture is invalid.
cudaError_t refuse_if_capturing(Stream& stream);

// For calls that no graph could repeat, like cudaMalloc, in a thread that is capturing: the same.
cudaError_t refuse_in_capturing_thread();

// True if the stream captures. With the mutex locked.
bool is_capturing(const Stream& stream);

}  // namespace emulated_cuda

struct CUgraph_st {
  std::shared_ptr<const emulated_cuda::Graph> graph;
};

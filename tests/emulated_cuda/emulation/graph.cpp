// Graphs: captured work, launched as often as one likes.
//
// A launch is one piece of work in its stream. Within it a node runs once all nodes before it are
// done; among several that could run, TP_EMULATED_ORDER chooses, so that a dependency that was not
// captured shows.
#include <algorithm>
#include <random>

#include "capture.h"
#include "device.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

struct CUgraphExec_st {
  std::shared_ptr<const emulated_cuda::Graph> graph;
  // Launches of one executable graph follow each other, whatever their streams.
  std::size_t launched = 0;
  std::size_t completed = 0;
  emulated_cuda::Stream* last_stream = nullptr;
  emulated_cuda::OrderPoint order;
};

namespace emulated_cuda {
namespace {

// Where the nodes of a branch run: a stream that the program never sees. ThreadSanitizer has room for
// some thousand contexts only, so the branches of all graphs share them, one after another.
class Lanes {
 public:
  static std::unique_ptr<Stream> take(int device) {
    const std::lock_guard lock(stream_mutex());
    std::vector<std::unique_ptr<Stream>>& idle = idle_lanes()[device];
    if (idle.empty()) {
      auto created = std::make_unique<Stream>();
      created->device = device;
      created->context = Context::create("branch of a CUDA graph");
      return created;
    }
    std::unique_ptr<Stream> result = std::move(idle.back());
    idle.pop_back();
    return result;
  }

  static void give_back(std::unique_ptr<Stream> lane) {
    const std::lock_guard lock(stream_mutex());
    idle_lanes()[lane->device].push_back(std::move(lane));
  }

 private:
  static std::map<int, std::vector<std::unique_ptr<Stream>>>& idle_lanes() {
    static auto* const result = new std::map<int, std::vector<std::unique_ptr<Stream>>>;
    return *result;
  }
};

class GraphLaunch : public Work {
 public:
  explicit GraphLaunch(std::shared_ptr<CUgraphExec_st> executable)
      : executable_(std::move(executable)) {}

  void accept(Stream& stream) override {
    for (const GraphNode& node : executable_->graph->nodes) {
      nodes_.push_back({node.work->again(), false, {}});
      nodes_.back().work->accept(stream);
    }
    const std::lock_guard lock(stream_mutex());
    ticket_ = executable_->launched++;
    previous_stream_ = std::exchange(executable_->last_stream, &stream);
  }

  bool run(Stream& stream) override {
    {
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      if (executable_->completed != ticket_) {
        return false;
      }
      previous_stream_ = nullptr;
    }
    take_lanes(stream);
    executable_->order.acquire();
    begin_.release();
    while (run_some_node(stream)) {
    }
    if (num_done_ < nodes_.size()) {
      return false;
    }
    for (Node& node : nodes_) {
      node.order.acquire();
    }
    executable_->order.release();
    const Quiet quiet;
    for (std::unique_ptr<Stream>& lane : lanes_) {
      if (lane != nullptr) {
        Lanes::give_back(std::move(lane));
      }
    }
    const std::lock_guard lock(stream_mutex());
    ++executable_->completed;
    return true;
  }

  std::vector<Stream*> waits_for() const override {
    if (previous_stream_ != nullptr) {
      return {previous_stream_};
    }
    std::vector<Stream*> result;
    for (const Node& node : nodes_) {
      if (!node.done) {
        const std::vector<Stream*> needed = node.work->waits_for();
        result.insert(result.end(), needed.begin(), needed.end());
      }
    }
    return result;
  }

  std::unique_ptr<Work> again() const override {
    return std::make_unique<GraphLaunch>(executable_);
  }

  std::string describe() const override {
    std::string result = text("a graph, %zu of %zu nodes done", num_done_, nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (can_run(i)) {
        result += "; next " + nodes_[i].work->describe();
      }
    }
    return result;
  }

 private:
  struct Node {
    std::unique_ptr<Work> work;
    bool done = false;
    OrderPoint order;
  };

  // The origin's nodes run in the stream of the launch itself, if it is of the same device.
  void take_lanes(const Stream& stream) {
    const Quiet quiet;
    const std::vector<int>& devices = executable_->graph->lane_devices;
    for (std::size_t lane = lanes_.size(); lane < devices.size(); ++lane) {
      const bool is_stream_itself = lane == 0 && devices[0] == stream.device;
      lanes_.push_back(is_stream_itself ? nullptr : Lanes::take(devices[lane]));
    }
  }

  bool can_run(std::size_t number) const {
    const std::set<std::size_t>& after = executable_->graph->nodes[number].after;
    return !nodes_[number].done && std::all_of(after.begin(), after.end(),
                                               [this](std::size_t i) { return nodes_[i].done; });
  }

  // Tries all nodes that could run; true once one of them is done.
  bool run_some_node(Stream& stream) {
    std::vector<std::size_t> candidates;
    {
      const Quiet quiet;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (can_run(i)) {
          candidates.push_back(i);
        }
      }
      if (settings().order == Order::reverse) {
        std::reverse(candidates.begin(), candidates.end());
      } else if (settings().order == Order::random) {
        std::shuffle(candidates.begin(), candidates.end(),
                     std::mt19937(settings().seed + static_cast<unsigned>(num_done_)));
      }
    }
    return std::any_of(candidates.begin(), candidates.end(),
                       [this, &stream](std::size_t number) { return run_node(number, stream); });
  }

  bool run_node(std::size_t number, Stream& stream) {
    const GraphNode& node = executable_->graph->nodes[number];
    Stream& lane = lanes_[node.lane] == nullptr ? stream : *lanes_[node.lane];
    const Context outer = Context::current();  // the same, for the nodes of the origin
    lane.context.enter();
    begin_.acquire();
    for (const std::size_t earlier : node.after) {
      nodes_[earlier].order.acquire();
    }
    nodes_[number].done = nodes_[number].work->run(lane);
    nodes_[number].order.release();
    outer.enter();
    num_done_ += nodes_[number].done ? 1 : 0;
    return nodes_[number].done;
  }

  std::shared_ptr<CUgraphExec_st> executable_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Stream>> lanes_;  // null: the stream of the launch
  std::size_t num_done_ = 0;
  std::size_t ticket_ = 0;
  Stream* previous_stream_ = nullptr;
  OrderPoint begin_;
};

// Handles that the program holds; a launch that is still in a stream holds the graph itself.
std::map<cudaGraphExec_t, std::shared_ptr<CUgraphExec_st>>& executables() {
  static auto* const result = new std::map<cudaGraphExec_t, std::shared_ptr<CUgraphExec_st>>;
  return *result;
}

std::shared_ptr<CUgraphExec_st> executable_of(cudaGraphExec_t handle, const char* function) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  const auto found = executables().find(handle);
  if (found == executables().end()) {
    report("dead handle", text("%s: the graph was destroyed, or never instantiated", function));
  }
  return found->second;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  if (graph == nullptr) {
    return fail(cudaErrorInvalidValue);
  }
  const Quiet quiet;
  auto created = std::make_shared<CUgraphExec_st>();
  created->graph = graph->graph;
  const std::lock_guard lock(stream_mutex());
  *executable = created.get();
  executables()[created.get()] = std::move(created);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  Stream& stream = stream_of(stream_handle, "cudaGraphLaunch");
  return enqueue(stream, std::make_unique<GraphLaunch>(executable_of(handle, "cudaGraphLaunch")));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (graph == nullptr) {
    return fail(cudaErrorInvalidValue);
  }
  const std::size_t present = graph->graph->nodes.size();
  if (nodes == nullptr) {
    *count = present;
    return cudaSuccess;
  }
  for (std::size_t i = 0; i < *count; ++i) {
    const void* const node = i < present ? &graph->graph->nodes[i] : nullptr;
    nodes[i] = static_cast<cudaGraphNode_t>(const_cast<void*>(node));
  }
  *count = std::min(*count, present);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Quiet quiet;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  const std::shared_ptr<CUgraphExec_st> executable = executable_of(handle, "cudaGraphExecDestroy");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  executables().erase(handle);
  return cudaSuccess;
}

// Captures that cannot be replayed, or not so.
#include "bug_kernels.h"
#include "on_two_ranks.h"

namespace emulated_test {
namespace {

// Captures what the body does and launches it `launches` times.
void capture_and_launch(const TestStream& stream, int launches, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < launches; ++i) {
    check(cudaGraphLaunch(executable, stream));
  }
  stream.synchronize();
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
}

bool graph_collective_on_one_rank(bool wrong) {
  return on_ranks(Floats(64, 4.0f), [wrong](const Rank& self) {
    capture_and_launch(self.stream, 2, [&] {
      if (!wrong || self.rank == 0) {
        check(sum(self, 64));
      }
    });
  });
}

bool graph_sync_in_capture(bool wrong) {
  const TestStream stream;
  const Zeros data(stream, 64);
  capture_and_launch(stream, 1, [&] {
    check(cudaMemsetAsync(data.data(), 0, 256, stream));
    if (wrong) {
      static_cast<void>(
          cudaStreamSynchronize(stream));  // a careless program does not even look at the error
    }
  });
  return true;
}

// Without a run before it, the capture meets what is done the first time only.
bool graph_without_warm_up(bool wrong) {
  const TestStream stream;
  float* workspace = nullptr;
  const auto step = [&] {
    if (workspace == nullptr) {
      check(cudaMalloc(&workspace, 256));
    }
    check(cudaMemsetAsync(workspace, 0, 256, stream));
  };
  if (!wrong) {
    step();
  }
  capture_and_launch(stream, 1, step);
  check(cudaFree(workspace));
  return true;
}

bool graph_of_freed_memory(bool wrong) {
  const TestStream stream;
  const Zeros out(stream, 64);
  float* in = nullptr;
  check(cudaMalloc(&in, 256));
  check(cudaMemsetAsync(in, 0, 256, stream));
  stream.synchronize();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  copy_elements(out.data(), in, 64, false, stream);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0));
  if (wrong) {
    check(cudaFree(in));
  }
  check(cudaGraphLaunch(executable, stream));
  const bool right = out.values() == Floats(64, 0.0f);
  if (!wrong) {
    check(cudaFree(in));
  }
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  return right;
}

// Two branches of a graph without the event that should order them.
bool graph_missing_event(bool wrong) {
  const TestStream stream;
  const TestStream branch;
  const DeviceArray<float> in(stream, Floats(64, 1.0f));
  const Zeros middle(stream, 64);
  const Zeros out(stream, 64);
  cudaEvent_t events[3];
  for (cudaEvent_t& event : events) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  stream.synchronize();
  capture_and_launch(stream, 1, [&] {
    check(cudaEventRecord(events[0], stream));
    check(cudaStreamWaitEvent(branch, events[0]));
    copy_elements(middle.data(), in.data(), 64, false, branch);
    check(cudaEventRecord(events[1], branch));
    if (!wrong) {
      check(cudaStreamWaitEvent(stream, events[1]));
    }
    copy_elements(out.data(), middle.data(), 64, false, stream);
    check(cudaStreamWaitEvent(stream, events[1]));
  });
  const bool right = out.values() == Floats(64, 1.0f);
  for (cudaEvent_t event : events) {
    check(cudaEventDestroy(event));
  }
  return right;
}

}  // namespace

std::vector<Bug> graph_bugs() {
  return {
      {"graph_collective_on_one_rank", graph_collective_on_one_rank},
      {"graph_sync_in_capture", graph_sync_in_capture},
      {"graph_without_warm_up", graph_without_warm_up},
      {"graph_of_freed_memory", graph_of_freed_memory},
      {"graph_missing_event", graph_missing_event},
  };
}

}  // namespace emulated_test

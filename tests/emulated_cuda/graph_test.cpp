// Stream capture and graphs: replays, several streams, ranks, and what a capture does not allow.
#include <thread>

#include <nccl.h>

#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

class TestEvent {
 public:
  TestEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~TestEvent() { cudaEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

void begin(cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

// Ends the capture and makes the graph ready to launch.
struct TestGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  explicit TestGraph(cudaStream_t stream) {
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
  }
  ~TestGraph() {
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;

  std::size_t num_nodes() const {
    std::size_t result = 0;
    check(cudaGraphGetNodes(graph, nullptr, &result));
    return result;
  }
};

cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t result = cudaStreamEndCapture(stream, &graph);
  CHECK(graph == nullptr);
  cudaGetLastError();
  return result;
}

}  // namespace

TEST_CASE("emulated CUDA graphs - capturing runs nothing, every launch runs all") {
  const TestStream stream;
  const DeviceArray<float> data(stream, std::vector<float>{1, 2});
  const DeviceArray<float> out(stream, std::vector<float>{0, 0});
  begin(stream);
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  add_one(out.data(), data.data(), 2, stream);
  check(cudaMemcpyAsync(data.data(), out.data(), 8, cudaMemcpyDeviceToDevice, stream));
  check(cudaMemsetAsync(out.data(), 0, 4, stream));
  const TestGraph graph(stream);
  check(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(graph.num_nodes() == 3);
  CHECK(data.values() == std::vector<float>{1, 2});
  check(cudaGraphLaunch(graph.executable, stream));
  check(cudaGraphLaunch(graph.executable, stream));
  CHECK(data.values() == std::vector<float>{3, 4});
  CHECK(out.values() == std::vector<float>{0, 4});
}

TEST_CASE("emulated CUDA graphs - events join streams into one capture, also of other devices") {
  const TestStream stream(0);
  const TestStream other(1);
  const DeviceArray<float> a(stream, std::vector<float>(100, 1.0f));
  const DeviceArray<float> b(other, std::vector<float>(100, 5.0f));
  const DeviceArray<float> c(other, std::vector<float>(100, 0.0f));
  stream.synchronize();
  other.synchronize();
  check(cudaSetDevice(0));
  const TestEvent fork;
  check(cudaSetDevice(1));
  const TestEvent join;
  check(cudaSetDevice(0));
  begin(stream);
  add_one(a.data(), a.data(), 100, stream);
  check(cudaEventRecord(fork, stream));
  check(cudaStreamWaitEvent(other, fork));
  check(cudaMemcpyPeerAsync(b.data(), 1, a.data(), 0, 400, other));
  check(cudaSetDevice(1));
  add_one(c.data(), b.data(), 100, other);
  check(cudaEventRecord(join, other));
  check(cudaStreamWaitEvent(stream, join));
  check(cudaMemcpyPeerAsync(a.data(), 0, c.data(), 1, 400, stream));
  const TestGraph graph(stream);
  CHECK(graph.num_nodes() == 4);
  check(cudaSetDevice(0));
  check(cudaGraphLaunch(graph.executable, stream));
  CHECK(a.values() == std::vector<float>(100, 3.0f));
  check(cudaGraphLaunch(graph.executable, stream));
  CHECK(a.values() == std::vector<float>(100, 5.0f));
}

TEST_CASE("emulated CUDA graphs - each rank captures its own, with collectives") {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const TestStream stream(rank);
      ncclComm_t comm = nullptr;
      ncclCommInitRank(&comm, 3, id, rank);
      const DeviceArray<float> data(stream, std::vector<float>(50, static_cast<float>(rank)));
      begin(stream);
      add_one(data.data(), data.data(), 50, stream);
      ncclAllReduce(data.data(), data.data(), 50, ncclFloat, ncclSum, comm, stream);
      const TestGraph graph(stream);
      for (int i = 0; i < 3; ++i) {
        check(cudaGraphLaunch(graph.executable, stream));
      }
      results[static_cast<std::size_t>(rank)] = data.values();
      ncclCommDestroy(comm);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // 0+1+2 and 3 for the additions, then three times (x + 1).
  const float once = 6;
  const float right = 3 * (3 * (once + 1) + 1);
  CHECK(results == std::vector<std::vector<float>>(3, std::vector<float>(50, right)));
}

TEST_CASE("emulated CUDA graphs - an invalid operation spoils the capture") {
  const TestStream stream;
  const DeviceArray<float> data(stream, std::vector<float>{1});
  const TestEvent event;
  stream.synchronize();
  void* memory = nullptr;

  begin(stream);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaMemsetAsync(data.data(), 0, 4, stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  CHECK(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  check(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorInvalidValue);
  CHECK(end(stream) == cudaErrorIllegalState);
  CHECK(data.values() == std::vector<float>{1});
}

TEST_CASE("emulated CUDA graphs - another thread may allocate while this one captures") {
  const TestStream stream;
  begin(stream);
  std::thread([] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 16));
    check(cudaFree(memory));
  }).join();
  const TestGraph graph(stream);
  CHECK(graph.num_nodes() == 0);
}

TEST_CASE("emulated CUDA graphs - work must be joined, and must not depend on the outside") {
  const TestStream stream;
  const TestStream other;
  const DeviceArray<float> data(stream, std::vector<float>{1});
  const TestEvent fork;
  const TestEvent outside;
  stream.synchronize();
  check(cudaEventRecord(outside, other));

  begin(stream);
  check(cudaEventRecord(fork, stream));
  check(cudaStreamWaitEvent(other, fork));
  check(cudaMemsetAsync(data.data(), 0, 4, other));
  CHECK(end(other) == cudaErrorStreamCaptureUnmatched);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  check(cudaEventRecord(fork, stream));
  check(cudaStreamWaitEvent(other, fork));
  check(cudaMemsetAsync(data.data(), 0, 4, other));
  CHECK(end(stream) == cudaErrorStreamCaptureUnjoined);

  begin(stream);
  CHECK(cudaStreamWaitEvent(stream, outside) == cudaErrorStreamCaptureIsolation);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] {
    cudaGraph_t graph = nullptr;
    elsewhere = cudaStreamEndCapture(stream, &graph);
  }).join();
  CHECK(elsewhere == cudaErrorStreamCaptureWrongThread);
  const TestGraph graph(stream);
  CHECK(data.values() == std::vector<float>{1});
}

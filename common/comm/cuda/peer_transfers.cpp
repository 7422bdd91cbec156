// The two ways in which PeerCommunicator reads another GPU's memory, for the self-test.
#include <cstring>
#include <memory>
#include <thread>

#include <cuda_runtime_api.h>

#include "common/comm/cuda/peer_self_test.h"
#include "common/comm/cuda/peer_staging.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/handles.h"
#include "common/device/cuda/reduce.h"

namespace tp::cuda {

namespace {

// Memory of one GPU, with a stream to fill and read it.
struct Place {
  int gpu;
  std::size_t bytes;
  Stream stream;
  DeviceBytes device;
  PinnedBytes host;

  Place(int on_gpu, std::span<const float> numbers) : gpu(on_gpu), bytes(numbers.size_bytes()) {
    use();
    stream = make_stream();
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc for the test of peer access");
    device.reset(static_cast<std::byte*>(memory));
    host = allocate_pinned(bytes);
    std::memcpy(host.get(), numbers.data(), bytes);
    check(cudaMemcpyAsync(device.get(), host.get(), bytes, cudaMemcpyHostToDevice, stream.get()),
          "copy to the GPU");
  }
  void use() const { check(cudaSetDevice(gpu), "cudaSetDevice"); }
  void wait(const StillWaiting& still_waiting) const {
    for (;;) {
      const cudaError_t result = cudaStreamQuery(stream.get());
      if (result != cudaErrorNotReady) return check(result, "the test of peer access");
      still_waiting();
      std::this_thread::yield();
    }
  }
};

struct Places {
  Place from, to;
};

template <class Move>
std::vector<float> transfer(GpuPair pair,
                            std::span<const float> sent,
                            std::span<const float> before,
                            const StillWaiting& still_waiting,
                            const Move& move) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  auto places = std::make_unique<Places>(Places{{pair.from, sent}, {pair.to, before}});
  const Place& to = places->to;
  std::vector<float> got(sent.size());
  try {
    places->from.wait(still_waiting);
    to.use();
    move(places->from, to);
    check(cudaMemcpyAsync(to.host.get(), to.device.get(), to.bytes, cudaMemcpyDeviceToHost,
                          to.stream.get()),
          "copy from the GPU");
    to.wait(still_waiting);
  } catch (...) {
    places.release();  // freeing it would wait for a transfer that may never end
    throw;
  }
  std::memcpy(got.data(), to.host.get(), to.bytes);
  check(cudaSetDevice(current), "cudaSetDevice");
  return got;
}

}  // namespace

std::vector<PeerTransfer> peer_transfers() {
  return {
      {"a copy",
       [](GpuPair pair, std::span<const float> sent, std::span<const float> before,
          const StillWaiting& still_waiting) {
         return transfer(pair, sent, before, still_waiting, [](const Place& from, const Place& to) {
           check(cudaMemcpyPeerAsync(to.device.get(), to.gpu, from.device.get(), from.gpu, to.bytes,
                                     to.stream.get()),
                 "cudaMemcpyPeerAsync");
         });
       }},
      {"a kernel that reads", [](GpuPair pair, std::span<const float> sent,
                                 std::span<const float> before, const StillWaiting& still_waiting) {
         return transfer(pair, sent, before, still_waiting, [](const Place& from, const Place& to) {
           ReduceSources source;  // the "sum" of one addend
           source.rank[0] = from.device.get();
           source.count = 1;
           const auto elements = static_cast<std::int64_t>(to.bytes / sizeof(float));
           reduce_ranks(source, DType::f32, {0, elements}, to.device.get(), to.stream.get());
         });
       }}};
}

}  // namespace tp::cuda

// What the environment variables change. Each test case needs its own value; CMakeLists.txt runs it
// with that.
#include <nccl.h>

#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

// 2048 floats of device `from` seen by device `to`: by a copy, or through a kernel.
struct PeerData {
  TestStream from;
  TestStream to;
  std::vector<float> values;

  PeerData(int from_device, int to_device) : from(from_device), to(to_device), values(2048) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i + 1);
    }
  }
  std::vector<float> copied() const {
    const DeviceArray<float> source(from, values);
    from.synchronize();
    const DeviceArray<float> target(to, std::vector<float>(values.size(), -1.0f));
    check(cudaMemcpyPeerAsync(target.data(), to.device(), source.data(), from.device(),
                              values.size() * sizeof(float), to));
    return target.values();
  }
  std::vector<float> read_by_kernel() const {
    const DeviceArray<float> source(from, values);
    from.synchronize();
    const DeviceArray<float> target(to, values.size());
    cudaDeviceEnablePeerAccess(from.device(), 0);
    cudaGetLastError();
    add_one(target.data(), source.data(), static_cast<int>(values.size()), to);
    std::vector<float> result = target.values();
    for (float& value : result) {
      value -= 1.0f;
    }
    CHECK(source.values() == values);  // only the view was wrong
    return result;
  }
};

}  // namespace

TEST_CASE("emulated CUDA - peers deliver wrong data where asked", "[.peer_wrong]") {
  const PeerData wrong(2, 1);
  CHECK(wrong.copied() != wrong.values);
  CHECK(wrong.read_by_kernel() != wrong.values);
  const PeerData right(2, 0);
  CHECK(right.copied() == right.values);
  CHECK(right.read_by_kernel() == right.values);
  const PeerData same_device(1, 1);
  CHECK(same_device.copied() == same_device.values);
}

TEST_CASE("emulated CUDA - without peer access copies still work", "[.peer_none]") {
  int can = -1;
  check(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 0);
  const PeerData data(1, 0);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
  cudaGetLastError();
  CHECK(data.copied() == data.values);
}

TEST_CASE("emulated CUDA - a device has as much memory as asked", "[.memory_3]") {
  const TestStream stream;
  void* first = nullptr;
  void* second = nullptr;
  check(cudaMalloc(&first, 2 << 20));
  CHECK(cudaMalloc(&second, (1 << 20) + 1) == cudaErrorMemoryAllocation);
  check(cudaMalloc(&second, 1 << 20));
  check(cudaFree(first));
  check(cudaFree(second));
  cudaGetLastError();
}

TEST_CASE("emulated CUDA - a machine without devices", "[.devices_0]") {
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
  cudaGetLastError();
}

TEST_CASE("emulated NCCL - a call that fails is told by the asynchronous error", "[.nccl_fault]") {
  const TestStream stream;
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
  const DeviceArray<float> data(stream, std::vector<float>{1});
  ncclResult_t error = ncclInternalError;
  for (int call = 1; call <= 2; ++call) {  // the variable names the second
    REQUIRE(ncclAllReduce(data.data(), data.data(), 1, ncclFloat, ncclSum, comm, stream) ==
            ncclSuccess);
    if (call == 1) {
      stream.synchronize();
    }
    cudaStreamQuery(stream);
    REQUIRE(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
    CHECK(error == (call == 1 ? ncclSuccess : ncclSystemError));
  }
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK_THAT(ncclGetLastError(comm), ContainsSubstring("TP_EMULATED_NCCL_FAULT"));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  stream.synchronize();
}

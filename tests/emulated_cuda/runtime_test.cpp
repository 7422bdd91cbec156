// Devices, memory, copies, streams and events.
#include <bit>
#include <cmath>
#include <thread>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/core/dtype.h"
#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    check(cudaEventCreateWithFlags(&event_, flags));
  }
  ~TestEvent() { cudaEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

TEST_CASE("emulated CUDA - devices describe themselves") {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  CHECK(count == 8);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 7));
  CHECK(std::string(properties.name) == "Emulated GPU");
  CHECK(properties.major == 9);
  CHECK(cudaGetDeviceProperties(&properties, 8) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(8) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("emulated CUDA - memory is counted, aligned and full of NaN") {
  const TestStream stream(3);
  std::size_t before = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&before, &total));
  float* data = nullptr;
  check(cudaMalloc(&data, 1000));
  CHECK(reinterpret_cast<std::uintptr_t>(data) % 256 == 0);
  std::size_t now = 0;
  check(cudaMemGetInfo(&now, &total));
  CHECK(before - now == 1000);
  float host[250];
  check(cudaMemcpyAsync(host, data, 1000, cudaMemcpyDeviceToHost, stream));
  stream.synchronize();
  CHECK(std::isnan(host[0]));
  CHECK(std::isnan(host[249]));
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data + 10));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 3);
  check(cudaPointerGetAttributes(&attributes, host));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  check(cudaFree(data));
  check(cudaMemGetInfo(&now, &total));
  CHECK(before == now);
  void* too_much = nullptr;
  CHECK(cudaMalloc(&too_much, total + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

TEST_CASE("emulated CUDA - gigabytes that nobody writes cost nothing") {
  const TestStream stream;
  char* data = nullptr;
  check(cudaMalloc(&data, 3ull << 30));
  float last = 0;
  check(cudaMemcpyAsync(&last, data + (3ull << 30) - 4, 4, cudaMemcpyDeviceToHost, stream));
  CHECK(std::isnan(last));
  check(cudaMemsetAsync(data + (1ull << 30), 0, 4, stream));
  check(cudaMemcpyAsync(&last, data + (1ull << 30), 4, cudaMemcpyDeviceToHost, stream));
  CHECK(last == 0.0f);
  check(cudaFree(data));
}

TEST_CASE("emulated CUDA - copies in rows and between devices") {
  const TestStream stream(0);
  const TestStream other(1);
  const DeviceArray<int> source(stream, std::vector<int>{1, 2, 3, 4, 5, 6});
  const DeviceArray<int> rows(stream, std::vector<int>(6, 0));
  check(cudaMemcpy2DAsync(rows.data(), 12, source.data() + 1, 12, 8, 2, cudaMemcpyDeviceToDevice,
                          stream));
  CHECK(rows.values() == std::vector<int>{2, 3, 0, 5, 6, 0});
  CHECK(cudaMemcpy2DAsync(rows.data(), 4, source.data(), 12, 8, 2, cudaMemcpyDeviceToDevice,
                          stream) == cudaErrorInvalidPitchValue);
  stream.synchronize();
  const DeviceArray<int> there(other, 6);
  check(cudaMemcpyPeerAsync(there.data(), 1, rows.data(), 0, 24, other));
  CHECK(there.values() == std::vector<int>{2, 3, 0, 5, 6, 0});
  cudaGetLastError();
}

TEST_CASE(
    "emulated CUDA - a pageable source may change at once, a pinned one not before the copy") {
  const TestStream stream;
  const DeviceArray<int> data(stream, 1);
  int value = 7;
  check(cudaMemcpyAsync(data.data(), &value, 4, cudaMemcpyHostToDevice, stream));
  value = 8;
  CHECK(data.values() == std::vector<int>{7});
  int* pinned = nullptr;
  check(cudaMallocHost(&pinned, 4));
  *pinned = 9;
  check(cudaMemcpyAsync(data.data(), pinned, 4, cudaMemcpyHostToDevice, stream));
  stream.synchronize();
  *pinned = 10;
  CHECK(data.values() == std::vector<int>{9});
  check(cudaFreeHost(pinned));
}

TEST_CASE("emulated CUDA - an event orders two streams, also of two devices and threads") {
  const TestStream producer(0);
  const TestStream consumer(1);
  check(cudaSetDevice(1));
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(0, 0);
  CHECK((enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled));
  cudaGetLastError();
  const DeviceArray<float> in(producer, std::vector<float>(300, 1.0f));
  const DeviceArray<float> middle(producer, 300);
  const DeviceArray<float> out(consumer, 300);
  check(cudaSetDevice(0));
  const TestEvent written;
  add_one(middle.data(), in.data(), 300, producer);
  check(cudaEventRecord(written, producer));
  std::thread([&] {
    check(cudaSetDevice(1));
    check(cudaStreamWaitEvent(consumer, written));
    add_one(out.data(), middle.data(), 300, consumer);
    CHECK(out.values() == std::vector<float>(300, 3.0f));
  }).join();
  check(cudaEventSynchronize(written));
  CHECK(cudaEventQuery(written) == cudaSuccess);
}

TEST_CASE("emulated CUDA - a stream is done when it says so") {
  const TestStream stream;
  const DeviceArray<float> in(stream, std::vector<float>(4, 1.0f));
  const DeviceArray<float> out(stream, 4);
  const TestEvent begin(cudaEventDefault);
  const TestEvent end(cudaEventDefault);
  check(cudaEventRecord(begin, stream));
  add_one(out.data(), in.data(), 4, stream);
  check(cudaEventRecord(end, stream));
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  float milliseconds = -1;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds >= 0);
  const TestEvent untimed;
  CHECK(cudaEventElapsedTime(&milliseconds, untimed, end) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("emulated CUDA - the 16-bit formats are the project's own") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half_bits = static_cast<std::uint16_t>(bits);
    const float from_brain = __bfloat162float(std::bit_cast<__nv_bfloat16>(half_bits));
    const float from_half = __half2float(std::bit_cast<__half>(half_bits));
    const float own_brain = tp::to_float(tp::bf16{half_bits});
    const float own_half = tp::to_float(tp::f16{half_bits});
    if (!((std::isnan(own_brain) && std::isnan(from_brain)) || own_brain == from_brain)) {
      FAIL("bf16 " << bits);
    }
    if (!((std::isnan(own_half) && std::isnan(from_half)) || own_half == from_half)) {
      FAIL("f16 " << bits);
    }
    if (std::isfinite(from_half)) {  // back, also from a little beside it
      for (const float beside : {from_half, from_half * 1.0001f, from_half * 0.9999f}) {
        if (!(__half2float(__float2half(beside)) == from_half) && std::fabs(from_half) > 1e-4f) {
          FAIL("f16 " << bits << " rounds wrongly");
        }
      }
    }
  }
  CHECK(std::isinf(__half2float(__float2half(65520.0f))));
  CHECK(__half2float(__float2half(65519.0f)) == 65504.0f);
  CHECK(__half2float(__float2half(0x1.8p-24f)) == 0x1p-23f);  // subnormal, a tie: to even
  CHECK(__half2float(__float2half(0x1p-25f)) == 0.0f);
  CHECK(__bfloat162float(__float2bfloat16(1.00390625f)) == 1.0f);
}

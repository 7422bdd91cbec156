// Kernels: indices, barriers, warp operations, shared memory, atomics.
#include <numeric>

#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

std::vector<int> numbers(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

TEST_CASE("emulated CUDA - every thread of every block runs once with its own indices") {
  const TestStream stream;
  const dim3 grid(3, 2, 2);
  const dim3 block(5, 3, 4);
  const DeviceArray<int> out(stream, 12 * 60);
  linear_numbers(out.data(), grid, block, stream);
  CHECK(out.values() == numbers(12 * 60));
}

TEST_CASE("emulated CUDA - a barrier holds the whole block") {
  const TestStream stream;
  for (const int threads : {1, 31, 32, 33, 256}) {
    const DeviceArray<int> in(stream, numbers(3 * threads));
    const DeviceArray<int> out(stream, static_cast<std::size_t>(3 * threads));
    reverse_blocks(out.data(), in.data(), 3, threads, stream);
    std::vector<int> right;
    for (int i = 0; i < 3 * threads; ++i) {
      right.push_back(i / threads * threads + threads - 1 - i % threads);
    }
    CHECK(out.values() == right);
  }
}

TEST_CASE("emulated CUDA - a block sum by shuffles and dynamic shared memory") {
  const TestStream stream;
  for (const int threads : {32, 64, 256}) {
    std::vector<float> values(static_cast<std::size_t>(4 * threads));
    std::iota(values.begin(), values.end(), 1.0f);
    const DeviceArray<float> in(stream, values);
    const DeviceArray<float> out(stream, 4);
    block_sums(out.data(), in.data(), 4, threads, stream);
    const std::vector<float> sums = out.values();
    for (int block = 0; block < 4; ++block) {
      const auto first = values.begin() + block * threads;
      CHECK(sums[static_cast<std::size_t>(block)] == std::accumulate(first, first + threads, 0.0f));
    }
  }
}

TEST_CASE("emulated CUDA - warp operations answer as CUDA defines them") {
  const TestStream stream;
  const DeviceArray<int> out(stream, 8 * 32);
  warp_operations(out.data(), stream);
  const std::vector<int> got = out.values();
  for (int lane = 0; lane < 32; ++lane) {
    const auto answer = [&](int row) { return got[static_cast<std::size_t>(row * 32 + lane)]; };
    CHECK(answer(0) == 30);                // broadcast of lane 3
    CHECK(answer(1) == lane / 8 * 8 + 1);  // the same in segments of 8
    CHECK(answer(2) == (lane == 0 ? 0 : lane - 1));
    CHECK(answer(3) == (lane % 4 < 2 ? lane + 2 : lane));  // own value beyond the segment
    CHECK(answer(4) == (lane ^ 5));
    CHECK(static_cast<unsigned>(answer(5)) == 0x49249249u);
    CHECK(answer(6) == 2);  // any holds, all does not
    CHECK(answer(7) == (lane < 16 ? lane ^ 1 : lane ^ 2));
  }
}

TEST_CASE("emulated CUDA - atomics count threads of all blocks") {
  const TestStream stream;
  const DeviceArray<int> counter(stream, std::vector<int>{0});
  const DeviceArray<int> largest(stream, std::vector<int>{-1});
  count_threads(counter.data(), largest.data(), 7, 96, stream);
  CHECK(counter.values() == std::vector<int>{7 * 96});
  CHECK(largest.values() == std::vector<int>{7 * 96 - 1});
}

TEST_CASE("emulated CUDA - local arrays belong to their thread") {
  const TestStream stream;
  const DeviceArray<int> out(stream, 3 * 64);
  local_arrays(out.data(), 3, 64, stream);
  std::vector<int> right = numbers(3 * 64);
  for (int& value : right) {
    value = 8 * value + 28;
  }
  CHECK(out.values() == right);
}

TEST_CASE("emulated CUDA - threads that have returned do not count at a barrier") {
  const TestStream stream;
  const DeviceArray<int> out(stream, 40);
  early_return(out.data(), 40, 64, stream);
  CHECK(out.values() == std::vector<int>(40, 40));
}

TEST_CASE("emulated CUDA - more than 48 KiB of dynamic shared memory must be allowed") {
  const TestStream stream;
  const DeviceArray<float> out(stream, 1);
  CHECK_THROWS_WITH(dynamic_shared(out.data(), 64 << 10, false, stream),
                    "unexpected cudaErrorInvalidValue");
  dynamic_shared(out.data(), 64 << 10, true, stream);
  CHECK(out.values() == std::vector<float>{16383.0f});
  CHECK_THROWS_WITH(dynamic_shared(out.data(), 228 << 10, true, stream),
                    "unexpected cudaErrorInvalidValue");
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("emulated CUDA - launches that a GPU refuses") {
  const TestStream stream;
  const TestStream other_device(1);
  const DeviceArray<int> out(stream, 16);
  CHECK_THROWS_WITH(linear_numbers(out.data(), dim3(0), dim3(1), stream),
                    "unexpected cudaErrorInvalidConfiguration");
  CHECK_THROWS_WITH(linear_numbers(out.data(), dim3(1), dim3(1025), stream),
                    "unexpected cudaErrorInvalidConfiguration");
  CHECK_THROWS_WITH(linear_numbers(out.data(), dim3(1), dim3(16), other_device),
                    "unexpected cudaErrorInvalidResourceHandle");
}

// NCCL over ranks that are threads, one device each, or one thread for all.
#include <functional>
#include <memory>
#include <thread>

#include <nccl.h>

#include "test_kernels.h"
#include "tests/catch.h"

using namespace emulated_test;

namespace {

void check(ncclResult_t result) {
  if (result != ncclSuccess) {
    throw std::runtime_error(ncclGetErrorString(result));
  }
}

struct Rank {
  int rank;
  int num_ranks;
  const TestStream& stream;
  ncclComm_t comm;
};

// Runs the body on so many threads, each a rank with its own device. Catch2's assertions stay on
// the main thread.
void on_ranks(int num_ranks, const std::function<void(const Rank&)>& body) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const TestStream stream(rank);
        ncclComm_t comm = nullptr;
        check(ncclCommInitRank(&comm, num_ranks, id, rank));
        body({rank, num_ranks, stream, comm});
        stream.synchronize();
        check(ncclCommDestroy(comm));
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(num_ranks)));
}

void expect(const std::vector<float>& got, const std::vector<float>& right) {
  if (got != right) {
    throw std::runtime_error("wrong values");
  }
}

ncclResult_t async_error(ncclComm_t comm) {
  ncclResult_t result = ncclInternalError;
  check(ncclCommGetAsyncError(comm, &result));
  return result;
}

}  // namespace

TEST_CASE("emulated NCCL - collectives of four ranks") {
  on_ranks(4, [](const Rank& self) {
    const auto own = static_cast<float>(self.rank + 1);
    const DeviceArray<float> data(self.stream,
                                  std::vector<float>{own, 10 * own, 100 * own, 1000 * own});
    const DeviceArray<float> out(self.stream, 4);
    const DeviceArray<float> wide(self.stream, 16);
    check(ncclAllReduce(data.data(), out.data(), 4, ncclFloat, ncclSum, self.comm, self.stream));
    expect(out.values(), {10, 100, 1000, 10000});
    check(ncclAllReduce(data.data(), out.data(), 4, ncclFloat, ncclMax, self.comm, self.stream));
    expect(out.values(), {4, 40, 400, 4000});
    check(ncclAllGather(data.data(), wide.data(), 4, ncclFloat, self.comm, self.stream));
    expect(wide.values(), {1, 10, 100, 1000, 2, 20, 200, 2000, 3, 30, 300, 3000, 4, 40, 400, 4000});
    check(
        ncclReduceScatter(wide.data(), out.data(), 4, ncclFloat, ncclSum, self.comm, self.stream));
    expect(out.values(), {4 * own, 40 * own, 400 * own, 4000 * own});
    check(ncclBroadcast(data.data(), data.data(), 4, ncclFloat, 2, self.comm, self.stream));
    expect(data.values(), {3, 30, 300, 3000});
    // Around a ring, both directions in one group.
    const int next = (self.rank + 1) % 4;
    const int previous = (self.rank + 3) % 4;
    const DeviceArray<float> mine(self.stream, std::vector<float>{own});
    check(ncclGroupStart());
    check(ncclSend(mine.data(), 1, ncclFloat, next, self.comm, self.stream));
    check(ncclRecv(out.data(), 1, ncclFloat, previous, self.comm, self.stream));
    check(ncclGroupEnd());
    expect({out.values()[0]}, {static_cast<float>(previous + 1)});
  });
}

TEST_CASE("emulated NCCL - 16-bit sums are built in f32 and rounded once") {
  on_ranks(2, [](const Rank& self) {
    // 256 + 1 has no bf16; 0x4380 is 256, 0x3f80 is 1.
    const DeviceArray<unsigned short> data(
        self.stream,
        std::vector<unsigned short>{static_cast<unsigned short>(self.rank == 0 ? 0x4380 : 0x3f80)});
    check(
        ncclAllReduce(data.data(), data.data(), 1, ncclBfloat16, ncclSum, self.comm, self.stream));
    if (data.values()[0] != 0x4380) {
      throw std::runtime_error("wrong rounding");
    }
  });
}

TEST_CASE("emulated NCCL - one thread can drive all ranks") {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  const TestStream stream0(0);
  const TestStream stream1(1);
  ncclComm_t comm0 = nullptr;
  ncclComm_t comm1 = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(cudaSetDevice(0));
  CHECK(ncclCommInitRankConfig(&comm0, 2, id, 0, &config) == ncclInProgress);
  CHECK(async_error(comm0) == ncclInProgress);
  check(cudaSetDevice(1));
  CHECK(ncclCommInitRankConfig(&comm1, 2, id, 1, &config) == ncclInProgress);
  CHECK(async_error(comm0) == ncclSuccess);
  CHECK(async_error(comm1) == ncclSuccess);
  int value = -1;
  check(ncclCommCount(comm1, &value));
  CHECK(value == 2);
  check(ncclCommUserRank(comm1, &value));
  CHECK(value == 1);
  check(ncclCommCuDevice(comm1, &value));
  CHECK(value == 1);
  const DeviceArray<float> data0(stream0, std::vector<float>{1});
  const DeviceArray<float> data1(stream1, std::vector<float>{2});
  // The first call of a non-blocking communicator is in progress until somebody asks.
  CHECK(ncclAllReduce(data0.data(), data0.data(), 1, ncclFloat, ncclSum, comm0, stream0) ==
        ncclInProgress);
  CHECK(async_error(comm0) == ncclInProgress);
  CHECK(async_error(comm0) == ncclSuccess);
  CHECK(ncclAllReduce(data1.data(), data1.data(), 1, ncclFloat, ncclSum, comm1, stream1) ==
        ncclInProgress);
  CHECK(data0.values() == std::vector<float>{3});
  CHECK(data1.values() == std::vector<float>{3});
  check(ncclCommDestroy(comm0));
  check(ncclCommDestroy(comm1));
}

TEST_CASE("emulated NCCL - two ranks on one device are refused") {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<ncclResult_t> results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      cudaSetDevice(5);
      ncclComm_t comm = nullptr;
      results[static_cast<std::size_t>(rank)] = ncclCommInitRank(&comm, 2, id, rank);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(results == std::vector<ncclResult_t>(2, ncclInvalidUsage));

  ncclComm_t comm0 = nullptr;
  ncclComm_t comm1 = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(ncclGetUniqueId(&id));
  ncclCommInitRankConfig(&comm0, 2, id, 0, &config);
  ncclCommInitRankConfig(&comm1, 2, id, 1, &config);
  CHECK(async_error(comm0) == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(comm0),
             ContainsSubstring("Duplicate GPU detected : rank 0 and rank 1"));
  check(ncclCommAbort(comm0));
  check(ncclCommAbort(comm1));
}

TEST_CASE("emulated NCCL - a rank that waits for a lost one is woken by its own abort") {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const TestStream stream0(0);
  const TestStream stream1(1);
  ncclComm_t comm0 = nullptr;
  ncclComm_t comm1 = nullptr;
  check(cudaSetDevice(0));
  ncclCommInitRankConfig(&comm0, 2, id, 0, &config);
  check(cudaSetDevice(1));
  ncclCommInitRankConfig(&comm1, 2, id, 1, &config);
  check(cudaSetDevice(0));
  const DeviceArray<float> data(stream0, std::vector<float>{1});
  ncclAllReduce(data.data(), data.data(), 1, ncclFloat, ncclSum, comm0, stream0);
  CHECK(async_error(comm0) == ncclInProgress);
  CHECK(cudaStreamQuery(stream0) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream0) == cudaErrorNotReady);
  CHECK(async_error(comm0) == ncclSuccess);
  check(ncclCommAbort(comm1));
  CHECK(async_error(comm0) == ncclRemoteError);
  CHECK_THAT(ncclGetLastError(comm0), ContainsSubstring("rank 1 has aborted"));
  CHECK(cudaStreamQuery(stream0) == cudaErrorNotReady);
  std::thread waiting([&] { stream0.synchronize(); });
  check(ncclCommAbort(comm0));
  waiting.join();
  CHECK(cudaStreamQuery(stream0) == cudaSuccess);
}

TEST_CASE("emulated NCCL - arguments that the real one refuses") {
  on_ranks(2, [](const Rank& self) {
    const DeviceArray<float> data(self.stream, std::vector<float>{1});
    const auto wrong_type = ncclNumTypes;
    if (ncclAllReduce(data.data(), data.data(), 1, wrong_type, ncclSum, self.comm, self.stream) !=
            ncclInvalidArgument ||
        ncclBroadcast(data.data(), data.data(), 1, ncclFloat, 2, self.comm, self.stream) !=
            ncclInvalidArgument ||
        ncclAllReduce(data.data(), data.data(), 1, ncclFloat, ncclSum, nullptr, self.stream) !=
            ncclInvalidArgument) {
      throw std::runtime_error("accepted");
    }
  });
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

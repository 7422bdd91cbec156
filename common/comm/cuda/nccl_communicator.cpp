#include "common/comm/cuda/nccl_communicator.h"

#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/comm/cuda/nccl.h"
#include "common/core/error.h"
#include "common/device/cuda/check.h"

namespace tp::cuda {

namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
  }
  throw Error(ErrorKind::rank, "NCCL: an unknown dtype");
}

std::size_t count_of(ConstTensorView x) {
  return static_cast<std::size_t>(x.shape.elements());
}

// Rank 0 makes the name under which the ranks find each other, and tells the others.
ncclUniqueId agree_on_id(Group& group) {
  ncclUniqueId id{};
  std::vector<std::byte> bytes(sizeof id);
  if (group.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
      throw Error(ErrorKind::rank,
                  fmt::format("ncclGetUniqueId: {} ({})", ncclGetErrorString(result),
                              ncclGetLastError(nullptr)));
    std::memcpy(bytes.data(), &id, sizeof id);
  }
  group.broadcast(bytes, 0);
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

}  // namespace

NcclCommunicator::NcclCommunicator(CudaDevice& device,
                                   Group& group,
                                   std::chrono::milliseconds timeout)
    : me_(device, group, timeout) {
  const ncclUniqueId id = agree_on_id(group);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // calls return at once, so that this thread can watch the others
  settle(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
  me_.watch(
      [this] {
        if (comm_ == nullptr) throw Aborted();
        const ncclResult_t now = state();
        if (now != ncclSuccess && now != ncclInProgress)
          fail(now, "while the host waited for " + last_call().to_string());
      },
      [this] { abort(); });
}

NcclCommunicator::~NcclCommunicator() {
  me_.watch({}, {});
  if (comm_ == nullptr) return;
  try {
    settle(ncclCommFinalize(comm_), "ncclCommFinalize");
  } catch (const std::exception&) {
    return;  // another rank failed, or this one: then the communicator has been aborted
  }
  ncclCommDestroy(comm_);
}

void NcclCommunicator::do_all_reduce(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  me_.group().meet(call);
  queue(call, [&] {
    return ncclAllReduce(x.data, x.data, count_of(x), type_of(x.dtype), ncclSum, comm_,
                         me_.stream());
  });
}

void NcclCommunicator::do_all_gather(const Call& call, ConstTensorView part, TensorView whole) {
  check_on_gpu(call, part);
  check_on_gpu(call, whole);
  me_.group().meet(call);
  queue(call, [&] {
    return ncclAllGather(part.data, whole.data, count_of(part), type_of(part.dtype), comm_,
                         me_.stream());
  });
}

void NcclCommunicator::do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) {
  check_on_gpu(call, whole);
  check_on_gpu(call, part);
  me_.group().meet(call);
  queue(call, [&] {
    return ncclReduceScatter(whole.data, part.data, count_of(part), type_of(part.dtype), ncclSum,
                             comm_, me_.stream());
  });
}

// NCCL has no gather: each rank sends its part to the root, which receives all of them at once.
void NcclCommunicator::do_gather(const Call& call, ConstTensorView part, TensorView whole) {
  check_on_gpu(call, part);
  const bool root = rank() == call.peer;
  if (root) check_on_gpu(call, whole);
  me_.group().meet(call);
  const std::int64_t part_bytes = part.bytes();
  if (root && part_bytes > 0 && whole.data + rank() * part_bytes != part.data)
    check(cudaMemcpyAsync(whole.data + rank() * part_bytes, part.data,
                          static_cast<std::size_t>(part_bytes), cudaMemcpyDeviceToDevice,
                          me_.stream()),
          "copy within a GPU");
  if (size() == 1) return me_.queued(call);
  queue(call, [&] {
    const std::size_t count = count_of(part);
    const ncclDataType_t type = type_of(part.dtype);
    std::vector<ncclResult_t> results{ncclGroupStart()};
    if (!root) results.push_back(ncclSend(part.data, count, type, call.peer, comm_, me_.stream()));
    for (int r = 0; root && r < size(); ++r)
      if (r != rank())
        results.push_back(
            ncclRecv(whole.data + r * part_bytes, count, type, r, comm_, me_.stream()));
    results.push_back(ncclGroupEnd());
    // Inside a group ncclInProgress says nothing yet; an error stays one.
    for (const ncclResult_t result : results)
      if (result != ncclSuccess && result != ncclInProgress) return result;
    return results.back();
  });
}

void NcclCommunicator::do_broadcast(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  me_.group().meet(call);
  queue(call, [&] {
    return ncclBroadcast(x.data, x.data, count_of(x), type_of(x.dtype), call.peer, comm_,
                         me_.stream());
  });
}

void NcclCommunicator::do_send(const Call& call, ConstTensorView x) {
  check_on_gpu(call, x);
  me_.group().post(call, call.peer);
  queue(call, [&] {
    return ncclSend(x.data, count_of(x), type_of(x.dtype), call.peer, comm_, me_.stream());
  });
}

void NcclCommunicator::do_recv(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  me_.group().take(call, call.peer);
  queue(call, [&] {
    return ncclRecv(x.data, count_of(x), type_of(x.dtype), call.peer, comm_, me_.stream());
  });
}

void NcclCommunicator::do_barrier(const Call& call) {
  me_.group().meet(call);
}

void NcclCommunicator::do_replayed(std::span<const Call> calls) {
  if (!calls.empty()) me_.queued(calls.back());
}

void NcclCommunicator::queue(const Call& call, const std::function<ncclResult_t()>& start) {
  if (comm_ == nullptr) throw Aborted();  // this rank has given up before
  if (call.elements > 0) settle(start(), call.to_string());
  me_.queued(call);
}

void NcclCommunicator::settle(ncclResult_t result, const std::string& what) {
  const Clock::time_point begin = Clock::now();
  while (result == ncclInProgress) {
    if (me_.group().aborted()) {
      abort();
      throw Aborted();
    }
    if (Clock::now() - begin > me_.timeout()) {
      abort();
      throw Error(ErrorKind::rank,
                  fmt::format("rank {} waited {} s for NCCL in {}; --timeout-s sets the limit, "
                              "NCCL_DEBUG=INFO shows what NCCL does",
                              rank(), static_cast<double>(me_.timeout().count()) / 1000, what));
    }
    std::this_thread::yield();
    result = state();
  }
  if (result != ncclSuccess) fail(result, what);
}

ncclResult_t NcclCommunicator::state() {
  ncclResult_t now = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &now);
  return asked == ncclSuccess ? now : asked;
}

void NcclCommunicator::abort() {
  if (comm_ == nullptr) return;
  ncclCommAbort(comm_);
  comm_ = nullptr;
}

void NcclCommunicator::fail(ncclResult_t result, const std::string& what) {
  const std::string reason =
      fmt::format("NCCL on rank {}, {}: {} ({}); NCCL_DEBUG=WARN shows more", rank(), what,
                  ncclGetErrorString(result), ncclGetLastError(comm_));
  abort();
  throw Error(ErrorKind::rank, reason);
}

std::optional<std::string> nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return std::nullopt;
  // Since 2.9 the number is major * 10000 + minor * 100 + patch.
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     Group& group,
                                                     std::chrono::milliseconds timeout) {
  return std::make_unique<NcclCommunicator>(device, group, timeout);
}

}  // namespace tp::cuda

// NCCL's collectives: checks of the arguments, groups, and the way into the stream.
#include <cstdint>

#include <nccl.h>

#include "memory.h"
#include "nccl_api.h"
#include "report.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

// Calls between ncclGroupStart and ncclGroupEnd. Those of one rank in one stream become one piece
// of work.
struct Group {
  struct Part {
    std::shared_ptr<ncclComm> comm;
    Stream* stream;
    std::vector<NcclCall> calls;
  };
  int depth = 0;
  std::vector<Part> parts;
};
thread_local Group group;

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

// Buffers may be the same only in the way that NCCL documents for each operation.
bool overlaps_wrongly(const NcclCall& call, int rank, int num_ranks) {
  const auto* const send = static_cast<const char*>(call.send);
  const auto* const receive = static_cast<const char*>(call.receive);
  const std::size_t sent = send_bytes(call, rank, num_ranks);
  const std::size_t received = receive_bytes(call, rank, num_ranks);
  if (sent == 0 || received == 0 || !overlap(send, sent, receive, received)) {
    return false;
  }
  const std::size_t own = static_cast<std::size_t>(rank) * call.count * bytes_of(call.type);
  switch (call.operation) {
    case NcclOperation::all_gather:
      return send != receive + own;
    case NcclOperation::reduce_scatter:
      return receive != send + own;
    default:
      return send != receive;
  }
}

bool is_valid(const NcclCall& call, const ncclComm& comm) {
  const bool reduces = call.operation == NcclOperation::all_reduce ||
                       call.operation == NcclOperation::reduce_scatter;
  const bool has_peer = call.is_point_to_point() || call.operation == NcclOperation::broadcast;
  return bytes_of(call.type) > 0 && (!reduces || can_reduce(call.type)) &&
         (!has_peer || (call.peer >= 0 && call.peer < comm.clique->num_ranks));
}

void check_buffers(const NcclCall& call, const ncclComm& comm) {
  const int num_ranks = comm.clique->num_ranks;
  if (const std::size_t bytes = send_bytes(call, comm.rank, num_ranks)) {
    require_device_memory(call.send, {call.function(), "sendbuff", bytes, comm.device});
  }
  if (const std::size_t bytes = receive_bytes(call, comm.rank, num_ranks)) {
    require_device_memory(call.receive, {call.function(), "recvbuff", bytes, comm.device});
  }
  if (overlaps_wrongly(call, comm.rank, num_ranks)) {
    report("overlapping buffers",
           text("rank %d, %s: sendbuff and recvbuff overlap, but not as NCCL allows it in place",
                comm.rank, call.describe().c_str()));
  }
}

ncclResult_t submit(const std::shared_ptr<ncclComm>& comm,
                    Stream& stream,
                    std::vector<NcclCall> calls) {
  const cudaError_t result = enqueue(stream, make_nccl_work(comm, std::move(calls)));
  return result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t add_to_group(const std::shared_ptr<ncclComm>& comm,
                          Stream& stream,
                          const NcclCall& call) {
  const Quiet quiet;
  for (Group::Part& part : group.parts) {
    if (part.comm == comm && part.stream == &stream) {
      part.calls.push_back(call);
      return ncclSuccess;
    }
  }
  group.parts.push_back({comm, &stream, {call}});
  return ncclSuccess;
}

ncclResult_t make_call(const NcclCall& call, ncclComm_t handle, cudaStream_t stream_handle) {
  if (handle == nullptr) {
    return ncclInvalidArgument;
  }
  const std::shared_ptr<ncclComm> comm = comm_of(handle, call.function());
  bool first_of_non_blocking = false;
  {
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    if (comm->async_error != ncclSuccess) {
      return comm->async_error == ncclInProgress ? ncclInvalidUsage : comm->async_error;
    }
    first_of_non_blocking = !comm->blocking && !comm->used;
    comm->used = true;
  }
  if (!is_valid(call, *comm)) {
    return ncclInvalidArgument;
  }
  Stream& stream = stream_of(stream_handle, call.function());
  if (stream.device != comm->device) {
    report("stream of another device",
           text("%s: rank %d's communicator is on device %d, the stream on device %d",
                call.function(), comm->rank, comm->device, stream.device));
  }
  check_buffers(call, *comm);
  const ncclResult_t result =
      group.depth > 0 ? add_to_group(comm, stream, call) : submit(comm, stream, {call});
  if (result == ncclSuccess && first_of_non_blocking) {  // the real one connects the ranks now
    comm->announced = false;
    return ncclInProgress;
  }
  return result;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) {
    return ncclInvalidUsage;
  }
  if (--group.depth > 0) {
    return ncclSuccess;
  }
  ncclResult_t result = ncclSuccess;
  std::vector<Group::Part> parts;
  parts.swap(group.parts);
  for (Group::Part& part : parts) {
    const ncclResult_t submitted = submit(part.comm, *part.stream, std::move(part.calls));
    result = result == ncclSuccess ? submitted : result;
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* send,
                           void* receive,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t operation,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  return make_call({NcclOperation::all_reduce, send, receive, count, type, operation}, comm,
                   stream);
}

ncclResult_t ncclAllGather(const void* send,
                           void* receive,
                           std::size_t send_count,
                           ncclDataType_t type,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  return make_call({NcclOperation::all_gather, send, receive, send_count, type}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send,
                               void* receive,
                               std::size_t receive_count,
                               ncclDataType_t type,
                               ncclRedOp_t operation,
                               ncclComm_t comm,
                               cudaStream_t stream) {
  return make_call({NcclOperation::reduce_scatter, send, receive, receive_count, type, operation},
                   comm, stream);
}

ncclResult_t ncclBroadcast(const void* send,
                           void* receive,
                           std::size_t count,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  return make_call({NcclOperation::broadcast, send, receive, count, type, ncclSum, root}, comm,
                   stream);
}

ncclResult_t ncclSend(const void* send,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  return make_call({NcclOperation::send, send, nullptr, count, type, ncclSum, peer}, comm, stream);
}

ncclResult_t ncclRecv(void* receive,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  return make_call({NcclOperation::receive, nullptr, receive, count, type, ncclSum, peer}, comm,
                   stream);
}

// NCCL's communicators: joining, errors, leaving.
#include <cstdio>
#include <cstring>

#include "capture.h"
#include "device.h"
#include "nccl_api.h"
#include "report.h"

namespace emulated_cuda {
namespace {

struct Communicators {
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by unique id
  std::map<const ncclComm*, std::shared_ptr<ncclComm>> handles;
  unsigned num_ids = 0;
};
Communicators& communicators() {
  static auto* const result = new Communicators;
  return *result;
}

// NCCL refuses two ranks on one device of one host; only when all have joined can it know.
std::string find_duplicate(const Clique& clique) {
  for (int a = 0; a < clique.num_ranks; ++a) {
    for (int b = a + 1; b < clique.num_ranks; ++b) {
      const int device = clique.ranks[static_cast<std::size_t>(a)]->device;
      if (device == clique.ranks[static_cast<std::size_t>(b)]->device) {
        return text("Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", a, b,
                    static_cast<unsigned>(device + 1) << 12);
      }
    }
  }
  return "";
}

std::shared_ptr<ncclComm> join(const ncclUniqueId& id, int num_ranks, int rank, bool blocking) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  std::shared_ptr<Clique>& clique = communicators().cliques[std::string(id.internal)];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->num_ranks = num_ranks;
    clique->ranks.resize(static_cast<std::size_t>(num_ranks));
  }
  if (clique->num_ranks != num_ranks) {
    report("mismatched communicator", text("rank %d says that there are %d ranks, another said %d",
                                           rank, num_ranks, clique->num_ranks));
  }
  std::shared_ptr<ncclComm>& place = clique->ranks[static_cast<std::size_t>(rank)];
  if (place != nullptr) {
    report("mismatched communicator", text("two ranks join as rank %d", rank));
  }
  place = std::make_shared<ncclComm>();
  place->clique = clique;
  place->rank = rank;
  place->device = current_device();
  place->blocking = blocking;
  communicators().handles[place.get()] = place;
  if (++clique->num_joined == num_ranks) {
    clique->refusal = find_duplicate(*clique);
    for (const auto& member : clique->ranks) {
      member->async_error = clique->refusal.empty() ? ncclSuccess : ncclInvalidUsage;
      member->last_error = clique->refusal;
    }
    announce_progress();
  } else {
    place->async_error = ncclInProgress;
  }
  return place;
}

// Until all ranks have joined, or this one has given up.
void wait_for_all(ncclComm& comm) {
  wait_until([&comm] { return comm.async_error != ncclInProgress || comm.aborted; });
}

}  // namespace

std::shared_ptr<ncclComm> comm_of(const ncclComm* handle, const char* function) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  const auto found = communicators().handles.find(handle);
  if (found == communicators().handles.end()) {
    report("dead handle", text("%s: the communicator was destroyed, or never created", function));
  }
  return found->second;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string result;
  const Quiet quiet;
  if (comm != nullptr) {
    const std::shared_ptr<ncclComm> present = comm_of(comm, "ncclGetLastError");
    const std::lock_guard lock(stream_mutex());
    result = present->last_error;
  }
  return result.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "emulated communicator %u",
                ++communicators().num_ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return ncclInvalidArgument;
  }
  if (refuse_in_capturing_thread() != cudaSuccess) {  // the real one allocates memory
    return ncclUnhandledCudaError;
  }
  const bool blocking = config == nullptr || config->blocking != 0;
  const std::shared_ptr<ncclComm> joined = join(id, num_ranks, rank, blocking);
  *comm = joined.get();
  if (!blocking) {
    return ncclInProgress;  // even for the last one: ncclCommGetAsyncError has the result
  }
  wait_for_all(*joined);
  if (joined->async_error != ncclSuccess) {
    *comm = nullptr;
  }
  return joined->async_error;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, num_ranks, id, rank, nullptr);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::shared_ptr<ncclComm> present = comm_of(comm, "ncclCommGetAsyncError");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  *error = present->async_error;
  if (*error == ncclSuccess && !present->announced) {
    present->announced = true;
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::shared_ptr<ncclComm> present = comm_of(comm, "ncclCommFinalize");
  return present->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::shared_ptr<ncclComm> present = comm_of(comm, "ncclCommDestroy");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  present->clique->ranks[static_cast<std::size_t>(present->rank)] = nullptr;
  communicators().handles.erase(comm);
  return ncclSuccess;
}

// What waits in this rank's streams ends without a result. The other ranks' calls go on waiting,
// but asking tells them.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::shared_ptr<ncclComm> present = comm_of(comm, "ncclCommAbort");
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  present->aborted = true;
  present->clique->ranks[static_cast<std::size_t>(present->rank)] = nullptr;
  for (const auto& other : present->clique->ranks) {
    if (other != nullptr && other->async_error == ncclSuccess) {
      other->async_error = ncclRemoteError;
      other->last_error = text("rank %d has aborted the communicator", present->rank);
    }
  }
  communicators().handles.erase(comm);
  announce_progress();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm_of(comm, "ncclCommCount")->clique->num_ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm_of(comm, "ncclCommUserRank")->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm_of(comm, "ncclCommCuDevice")->device;
  return ncclSuccess;
}

// One NCCL call of one rank, as data: what is compared with the other ranks' calls, described, and
// carried out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nccl.h>

namespace emulated_cuda {

enum class NcclOperation : unsigned char {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  send,
  receive
};

struct NcclCall {
  NcclOperation operation{};
  const void* send = nullptr;  // null for receive
  void* receive = nullptr;     // null for send
  std::size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t reduction = ncclSum;
  int peer = -1;  // the root of a broadcast, the other side of send and receive

  bool is_point_to_point() const { return operation >= NcclOperation::send; }
  // Whether two ranks' calls can be the same collective.
  bool matches(const NcclCall& other) const;
  // "ncclAllReduce(count 288, float32, sum)".
  std::string describe() const;
  const char* function() const;
};

// Bytes of an element; 0 for a type that is none.
std::size_t bytes_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

// Bytes that the rank's buffers must have.
std::size_t send_bytes(const NcclCall& call, int rank, int num_ranks);
std::size_t receive_bytes(const NcclCall& call, int rank, int num_ranks);

// Whether NCCL could reduce this type here: the types that the project uses.
bool can_reduce(ncclDataType_t type);

// Moves the data of a collective in which all ranks have arrived; calls[r] is rank r's. Sums go
// over the ranks in order, 16-bit types in f32, rounded once.
void carry_out(const std::vector<NcclCall>& calls);

}  // namespace emulated_cuda

#include "nccl_call.h"

#include <array>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "report.h"

namespace emulated_cuda {
namespace {

const char* name_of(ncclRedOp_t reduction) {
  static constexpr std::array kNames = {"sum", "product", "max", "min", "average"};
  const auto index = static_cast<std::size_t>(reduction);
  return index < kNames.size() ? kNames[index] : "unknown reduction";
}

// In which type a sum is built, and how it goes back.
float widen(float value) {
  return value;
}
float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
float widen(__half value) {
  return __half2float(value);
}
std::int64_t widen(std::int32_t value) {
  return value;
}
void narrow(float value, float& to) {
  to = value;
}
void narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16(value);
}
void narrow(float value, __half& to) {
  to = __float2half(value);
}
void narrow(std::int64_t value, std::int32_t& to) {
  to = static_cast<std::int32_t>(value);
}

template <class T>
T combine(ncclRedOp_t reduction, T a, T b) {
  switch (reduction) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return a < b ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:
      return a + b;
  }
}

// Elements [first, first + count) reduced over all ranks.
template <class T>
void reduce_as(const std::vector<NcclCall>& calls, std::size_t first, std::size_t count, char* to) {
  const auto num_ranks = static_cast<std::int64_t>(calls.size());
  for (std::size_t i = 0; i < count; ++i) {
    auto value = widen(static_cast<const T*>(calls[0].send)[first + i]);
    for (std::size_t rank = 1; rank < calls.size(); ++rank) {
      value = combine(calls[0].reduction, value,
                      widen(static_cast<const T*>(calls[rank].send)[first + i]));
    }
    if (calls[0].reduction == ncclAvg) {
      value /= static_cast<decltype(value)>(num_ranks);
    }
    narrow(value, reinterpret_cast<T*>(to)[i]);
  }
}

void reduce(const std::vector<NcclCall>& calls, std::size_t first, std::size_t count, char* to) {
  switch (calls[0].type) {
    case ncclFloat32:
      reduce_as<float>(calls, first, count, to);
      break;
    case ncclBfloat16:
      reduce_as<__nv_bfloat16>(calls, first, count, to);
      break;
    case ncclFloat16:
      reduce_as<__half>(calls, first, count, to);
      break;
    default:
      reduce_as<std::int32_t>(calls, first, count, to);
  }
}

}  // namespace

const char* name_of(ncclDataType_t type) {
  static constexpr std::array kNames = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                        "uint64", "float16", "float32", "float64", "bfloat16"};
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown type";
}

std::size_t bytes_of(ncclDataType_t type) {
  static constexpr std::array<std::size_t, 10> kBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  const auto index = static_cast<std::size_t>(type);
  return index < kBytes.size() ? kBytes[index] : 0;
}

bool can_reduce(ncclDataType_t type) {
  return type == ncclFloat32 || type == ncclBfloat16 || type == ncclFloat16 || type == ncclInt32;
}

bool NcclCall::matches(const NcclCall& other) const {
  return operation == other.operation && count == other.count && type == other.type &&
         reduction == other.reduction && peer == other.peer;
}

const char* NcclCall::function() const {
  static constexpr std::array kNames = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                        "ncclBroadcast", "ncclSend",      "ncclRecv"};
  return kNames[static_cast<std::size_t>(operation)];
}

std::string NcclCall::describe() const {
  std::string result = text("%s(count %zu, %s", function(), count, emulated_cuda::name_of(type));
  if (operation == NcclOperation::all_reduce || operation == NcclOperation::reduce_scatter) {
    result += text(", %s", name_of(reduction));
  }
  if (peer >= 0) {
    result += text(", %s %d", is_point_to_point() ? "peer" : "root", peer);
  }
  return result + ")";
}

std::size_t send_bytes(const NcclCall& call, int rank, int num_ranks) {
  const std::size_t one = call.count * bytes_of(call.type);
  switch (call.operation) {
    case NcclOperation::reduce_scatter:
      return one * static_cast<std::size_t>(num_ranks);
    case NcclOperation::broadcast:
      return rank == call.peer ? one : 0;
    case NcclOperation::receive:
      return 0;
    default:
      return one;
  }
}

std::size_t receive_bytes(const NcclCall& call, int /*rank*/, int num_ranks) {
  const std::size_t one = call.count * bytes_of(call.type);
  switch (call.operation) {
    case NcclOperation::all_gather:
      return one * static_cast<std::size_t>(num_ranks);
    case NcclOperation::send:
      return 0;
    default:
      return one;
  }
}

void carry_out(const std::vector<NcclCall>& calls) {
  const NcclCall& first = calls[0];
  const std::size_t num_ranks = calls.size();
  const std::size_t one = first.count * bytes_of(first.type);
  // The whole result first: buffers of input and output may be the same.
  std::vector<char> result;
  switch (first.operation) {
    case NcclOperation::all_reduce:
      result.resize(one);
      reduce(calls, 0, first.count, result.data());
      break;
    case NcclOperation::reduce_scatter:
      result.resize(one * num_ranks);
      reduce(calls, 0, first.count * num_ranks, result.data());
      break;
    case NcclOperation::all_gather:
      for (const NcclCall& call : calls) {
        result.insert(result.end(), static_cast<const char*>(call.send),
                      static_cast<const char*>(call.send) + one);
      }
      break;
    default: {
      const auto* const root =
          static_cast<const char*>(calls[static_cast<std::size_t>(first.peer)].send);
      result.assign(root, root + one);
    }
  }
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const bool only_own = first.operation == NcclOperation::reduce_scatter;
    const std::size_t from = only_own ? rank * one : 0;
    std::memcpy(calls[rank].receive, result.data() + from, only_own ? one : result.size());
  }
}

}  // namespace emulated_cuda

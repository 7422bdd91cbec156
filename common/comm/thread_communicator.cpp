#include "common/comm/thread_communicator.h"

#include <algorithm>
#include <cstring>

#include "common/comm/tree_sum.h"

namespace tp {

namespace {

// Calls chunk(offset, size) for pieces of `bytes`, none larger than the hub takes; once with size
// 0 for an empty message, because ranks meet for that too.
template <class Chunk>
void for_chunks(std::int64_t bytes, const Chunk& chunk) {
  std::size_t offset = 0;
  const auto total = static_cast<std::size_t>(bytes);
  do {
    const std::size_t size = std::min(total - offset, ThreadHub::kChunkBytes);
    chunk(offset, size);
    offset += size;
  } while (offset < total);
}

}  // namespace

void ThreadCommunicator::collect(std::byte* whole, std::size_t part_bytes, std::size_t offset) {
  for (int r = 0; r < size(); ++r) {
    const auto bytes = hub_.brought(rank_, r);
    std::copy(bytes.begin(), bytes.end(),
              whole + static_cast<std::size_t>(r) * part_bytes + offset);
  }
}

void ThreadCommunicator::sum_brought(DType dtype, std::byte* sum) {
  const auto bytes = hub_.brought(rank_, rank_).size();
  const auto count = static_cast<std::int64_t>(bytes / size_of(dtype));
  for (std::int64_t at = 0; at < count; at += kTreeSumLength) {
    const std::int64_t length = std::min(kTreeSumLength, count - at);
    float total[kTreeSumLength];
    const auto value = [&](int r, float* out) {
      const std::byte* data = hub_.brought(rank_, r).data();
      const auto* values_bf16 = reinterpret_cast<const bf16*>(data) + at;
      if (dtype == DType::f32)
        std::memcpy(out, data + at * 4, static_cast<std::size_t>(length) * 4);
      else
        for (std::int64_t i = 0; i < length; ++i) out[i] = to_float(values_bf16[i]);
    };
    tree_sum(0, size(), value, total, length);
    if (dtype == DType::f32)
      std::memcpy(sum + at * 4, total, static_cast<std::size_t>(length) * 4);
    else
      std::transform(total, total + length, reinterpret_cast<bf16*>(sum) + at, to_bf16);
  }
}

void ThreadCommunicator::do_all_reduce(const Call& call, TensorView x) {
  for_chunks(x.bytes(), [&](std::size_t offset, std::size_t count) {
    hub_.meet(rank_, call, {x.data + offset, count});
    sum_brought(x.dtype, x.data + offset);
  });
}

void ThreadCommunicator::do_all_gather(const Call& call, ConstTensorView part, TensorView whole) {
  for_chunks(part.bytes(), [&](std::size_t offset, std::size_t count) {
    hub_.meet(rank_, call, {part.data + offset, count});
    collect(whole.data, static_cast<std::size_t>(part.bytes()), offset);
  });
}

void ThreadCommunicator::do_reduce_scatter(const Call& call,
                                           ConstTensorView whole,
                                           TensorView part) {
  for (int owner = 0; owner < size(); ++owner) {
    const std::byte* theirs = whole.data + owner * part.bytes();
    for_chunks(part.bytes(), [&](std::size_t offset, std::size_t count) {
      hub_.meet(rank_, call, {theirs + offset, count});
      if (owner == rank_) sum_brought(part.dtype, part.data + offset);
    });
  }
}

void ThreadCommunicator::do_gather(const Call& call, ConstTensorView part, TensorView whole) {
  for_chunks(part.bytes(), [&](std::size_t offset, std::size_t count) {
    hub_.meet(rank_, call, {part.data + offset, count});
    if (rank_ == call.peer) collect(whole.data, static_cast<std::size_t>(part.bytes()), offset);
  });
}

void ThreadCommunicator::do_broadcast(const Call& call, TensorView x) {
  for_chunks(x.bytes(), [&](std::size_t offset, std::size_t count) {
    const bool root = rank_ == call.peer;
    hub_.meet(rank_, call, {x.data + offset, root ? count : 0});
    if (!root) std::copy_n(hub_.brought(rank_, call.peer).data(), count, x.data + offset);
  });
}

void ThreadCommunicator::do_send(const Call& call, ConstTensorView x) {
  for_chunks(x.bytes(), [&](std::size_t offset, std::size_t count) {
    hub_.post(rank_, call.peer, call, {x.data + offset, count});
  });
}

void ThreadCommunicator::do_recv(const Call& call, TensorView x) {
  for_chunks(x.bytes(), [&](std::size_t offset, std::size_t count) {
    hub_.take(call.peer, rank_, call, {x.data + offset, count});
  });
}

void ThreadCommunicator::do_barrier(const Call& call) {
  hub_.meet(rank_, call, {});
}

}  // namespace tp

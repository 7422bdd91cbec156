#include "common/comm/thread_group.h"

#include <algorithm>
#include <cstring>

namespace tp {

Call ThreadGroup::next_call(Op op, std::size_t size, int root) {
  Call call;
  call.sequence = ++calls_;
  call.op = op;
  call.elements = static_cast<std::int64_t>(size);
  call.peer = root;
  return call;
}

void ThreadGroup::barrier() {
  hub_.meet(rank_, next_call(Op::host_barrier, 0, -1), {});
}

std::span<const std::byte> ThreadGroup::exchange(std::span<const std::byte> record) {
  const Call call = next_call(Op::host_exchange, record.size(), -1);
  exchanged_.resize(record.size() * static_cast<std::size_t>(size()));
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(record.size() - done, ThreadHub::kChunkBytes);
    hub_.meet(rank_, call, record.subspan(done, count));
    for (int r = 0; r < size(); ++r) {
      std::byte* to = exchanged_.data() + static_cast<std::size_t>(r) * record.size() + done;
      std::copy_n(hub_.brought(rank_, r).data(), count, to);
    }
    done += count;
  } while (done < record.size());
  return exchanged_;
}

void ThreadGroup::broadcast(std::vector<std::byte>& bytes, int root, Patience patience) {
  // Only root knows the size, so it comes first. Root itself waits for the others as usual.
  if (rank_ == root) patience = Patience::limited;
  std::uint64_t total = bytes.size();
  hub_.meet(rank_, next_call(Op::host_broadcast, 0, root), std::as_bytes(std::span(&total, 1)),
            patience);
  std::memcpy(&total, hub_.brought(rank_, root).data(), sizeof total);
  const Call call = next_call(Op::host_broadcast, total, root);
  bytes.resize(total);
  for (std::size_t done = 0; done < total;) {
    const std::size_t count = std::min(total - done, ThreadHub::kChunkBytes);
    const auto part = std::span(bytes).subspan(done, count);
    hub_.meet(rank_, call, rank_ == root ? part : std::span<std::byte>());
    if (rank_ != root) std::copy_n(hub_.brought(rank_, root).data(), count, part.begin());
    done += count;
  }
}

}  // namespace tp

#include "common/comm/cuda/peer_communicator.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/device/cuda/check.h"
#include "common/device/cuda/reduce.h"

namespace tp::cuda {

namespace {

// Calls piece(offset, size) for pieces of `bytes`, none larger than `most`; once with size 0 for an
// empty tensor, because ranks meet for that too.
template <class Piece>
void for_pieces(std::int64_t bytes, std::size_t most, const Piece& piece) {
  const auto total = static_cast<std::size_t>(bytes);
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(total - offset, most);
    piece(offset, size);
    offset += size;
  } while (offset < total);
}

// The bytes of a piece that rank r sums, in whole units of 16 bytes but for the last.
Range slice_of(std::size_t bytes, int r, int ranks) {
  const auto total = static_cast<std::int64_t>(bytes);
  const std::int64_t units = (total + 15) / 16;
  const std::int64_t each = (units + ranks - 1) / ranks * 16;
  return {std::min(total, r * each), std::min(total, (r + 1) * each)};
}

}  // namespace

PeerCommunicator::PeerCommunicator(PeerStaging& staging,
                                   CudaDevice& device,
                                   Group& group,
                                   std::chrono::milliseconds timeout)
    : staging_(staging), me_(device, group, timeout) {
  if (size() > kMaxReduceRanks)
    throw input_error(fmt::format("--comm peer: {} ranks; at most {} can share a process", size(),
                                  kMaxReduceRanks));
  staging_.add(rank(), device.gpu());
  group.barrier();  // from here on everybody's part is there
}

void PeerCommunicator::do_all_reduce(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  if (size() == 1) return;
  for_pieces(x.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               // Two ranks read as much in two shots as in one.
               if (size() == 2 || bytes <= staging_.options().one_shot_bytes)
                 reduce_in_one_shot(call, x.data + offset, bytes);
               else
                 reduce_in_two_shots(call, x.data + offset, bytes);
             });
  me_.queued(call);
}

void PeerCommunicator::reduce_in_one_shot(const Call& call, std::byte* x, std::size_t bytes) {
  bring(x, bytes);
  meet(call);
  sum(call.dtype, x, 0, bytes, x);
}

void PeerCommunicator::reduce_in_two_shots(const Call& call, std::byte* x, std::size_t bytes) {
  const auto slice = [&](int r, const auto& use) {
    const Range range = slice_of(bytes, r, size());
    if (range.size() > 0)
      use(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
  };
  bring(x, bytes);
  meet(call);
  slice(rank(), [&](std::size_t begin, std::size_t count) {
    sum(call.dtype, x + begin, begin, count, x + begin);
    bring(x + begin, count, begin);
  });
  meet(call);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    slice(r,
          [&](std::size_t begin, std::size_t count) { copy_brought(r, begin, count, x + begin); });
  }
}

void PeerCommunicator::do_all_gather(const Call& call, ConstTensorView part, TensorView whole) {
  check_on_gpu(call, part);
  check_on_gpu(call, whole);
  for_pieces(part.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               bring(part.data + offset, bytes);
               meet(call);
               collect(part.data + offset, bytes, whole.data + offset,
                       static_cast<std::size_t>(part.bytes()));
             });
  me_.queued(call);
}

void PeerCommunicator::do_gather(const Call& call, ConstTensorView part, TensorView whole) {
  check_on_gpu(call, part);
  if (rank() == call.peer) check_on_gpu(call, whole);
  for_pieces(part.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               bring(part.data + offset, bytes);
               meet(call);
               if (rank() == call.peer)
                 collect(part.data + offset, bytes, whole.data + offset,
                         static_cast<std::size_t>(part.bytes()));
             });
  me_.queued(call);
}

void PeerCommunicator::collect(const std::byte* mine,
                               std::size_t bytes,
                               std::byte* whole,
                               std::size_t part_bytes) {
  for (int r = 0; r < size(); ++r) {
    std::byte* const to = whole + static_cast<std::size_t>(r) * part_bytes;
    if (r == rank())
      copy_here(mine, bytes, to);
    else
      copy_brought(r, 0, bytes, to);
  }
}

void PeerCommunicator::do_reduce_scatter(const Call& call, ConstTensorView whole, TensorView part) {
  check_on_gpu(call, whole);
  check_on_gpu(call, part);
  const auto ranks = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank());
  const auto part_bytes = static_cast<std::size_t>(part.bytes());
  // A piece of every part has a place of its own in the staging buffer.
  const std::size_t place_bytes = staging_.options().staging_bytes / ranks / 16 * 16;
  for_pieces(part.bytes(), place_bytes, [&](std::size_t offset, std::size_t bytes) {
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != me) bring(whole.data + r * part_bytes + offset, bytes, r * place_bytes);
    meet(call);
    sum(call.dtype, whole.data + me * part_bytes + offset, me * place_bytes, bytes,
        part.data + offset);
  });
  me_.queued(call);
}

void PeerCommunicator::do_broadcast(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  if (size() == 1) return;
  for_pieces(x.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               if (rank() == call.peer) bring(x.data + offset, bytes);
               meet(call);
               if (rank() != call.peer) copy_brought(call.peer, 0, bytes, x.data + offset);
             });
  me_.queued(call);
}

// A send has an outbox of its own, because the other ranks do not come to its meetings. It waits on
// the host until the receiver has queued its copy, and its stream until the copy is done.
void PeerCommunicator::do_send(const Call& call, ConstTensorView x) {
  check_on_gpu(call, x);
  PeerStaging::Buffer& outbox = staging_.of(rank()).outbox;
  if (outbox.data() == nullptr) outbox = staging_.make_buffer();
  for_pieces(x.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               copy_out(x.data + offset, bytes, outbox.data());
               record(outbox.ready);
               me_.group().post(call, call.peer);
               me_.group().take(call, call.peer);
               wait_for(staging_.of(call.peer).taken);
             });
  me_.queued(call);
}

void PeerCommunicator::do_recv(const Call& call, TensorView x) {
  check_on_gpu(call, x);
  for_pieces(x.bytes(), staging_.options().staging_bytes,
             [&](std::size_t offset, std::size_t bytes) {
               me_.group().take(call, call.peer);
               const PeerStaging::OfRank& sender = staging_.of(call.peer);
               wait_for(sender.outbox.ready);
               copy_in(sender.outbox.data(), sender.gpu, bytes, x.data + offset);
               record(staging_.of(rank()).taken);
               me_.group().post(call, call.peer);
             });
  me_.queued(call);
}

void PeerCommunicator::do_barrier(const Call& call) {
  meet(call);
}

void PeerCommunicator::sum(
    DType dtype, const std::byte* mine, std::size_t offset, std::size_t bytes, std::byte* out) {
  ReduceSources sources;
  sources.count = size();
  for (int r = 0; r < size(); ++r)
    sources.rank[r] = r == rank() ? mine : readable(r, offset, bytes);
  const auto elements = static_cast<std::int64_t>(bytes / size_of(dtype));
  reduce_ranks(sources, dtype, {0, elements}, out, me_.stream());
}

void PeerCommunicator::bring(const std::byte* from, std::size_t bytes, std::size_t offset) {
  if (size() > 1) copy_out(from, bytes, staging_.of(rank()).brought[meetings_ % 2].data() + offset);
}

void PeerCommunicator::meet(const Call& call) {
  if (size() == 1) return;
  record(staging_.of(rank()).brought[meetings_ % 2].ready);
  me_.group().meet(call);
  for (int r = 0; r < size(); ++r)
    if (r != rank()) wait_for(staging_.of(r).brought[meetings_ % 2].ready);
  ++meetings_;
}

const PeerStaging::Buffer& PeerCommunicator::brought(int r) {
  return staging_.of(r).brought[(meetings_ - 1) % 2];
}

void PeerCommunicator::copy_brought(int r, std::size_t offset, std::size_t bytes, std::byte* to) {
  copy_in(brought(r).data() + offset, staging_.of(r).gpu, bytes, to);
}

const std::byte* PeerCommunicator::readable(int r, std::size_t offset, std::size_t bytes) {
  if (!staging_.options().through_host) return brought(r).data() + offset;
  std::byte* const copy = staging_.of(rank()).inbox.get() +
                          static_cast<std::size_t>(r) * staging_.options().staging_bytes;
  copy_brought(r, offset, bytes, copy);
  return copy;
}

void PeerCommunicator::copy_out(const std::byte* from, std::size_t bytes, std::byte* buffer) {
  if (bytes == 0) return;
  const auto kind =
      staging_.options().through_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
  check(cudaMemcpyAsync(buffer, from, bytes, kind, me_.stream()),
        "copy to the memory between ranks");
}

void PeerCommunicator::copy_in(const std::byte* buffer, int gpu, std::size_t bytes, std::byte* to) {
  if (bytes == 0) return;
  if (!staging_.options().through_host && gpu == me_.gpu()) return copy_here(buffer, bytes, to);
  check(staging_.options().through_host
            ? cudaMemcpyAsync(to, buffer, bytes, cudaMemcpyHostToDevice, me_.stream())
            : cudaMemcpyPeerAsync(to, me_.gpu(), buffer, gpu, bytes, me_.stream()),
        "copy from the memory between ranks");
}

void PeerCommunicator::copy_here(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (bytes == 0 || from == to) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, me_.stream()),
        "copy within a GPU");
}

void PeerCommunicator::wait_for(const Event& event) {
  check(cudaStreamWaitEvent(me_.stream(), event.get(), 0), "cudaStreamWaitEvent");
}

void PeerCommunicator::record(const Event& event) {
  check(cudaEventRecord(event.get(), me_.stream()), "cudaEventRecord");
}

}  // namespace tp::cuda

#include "common/comm/thread_hub.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "common/comm/group.h"
#include "common/core/error.h"

namespace tp {

namespace {

// Sleeps until `word` is no longer `expected`, somebody wakes us, or 20 ms have passed.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  const timespec nap{0, 20'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &nap, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadHub::ThreadHub(int ranks, std::chrono::milliseconds timeout) : timeout_(timeout) {
  for (int r = 0; r < ranks; ++r) boxes_.push_back(std::make_unique<Box>());
  for (int c = 0; c < ranks * ranks; ++c) channels_.push_back(std::make_unique<Channel>());
  // With a core for every rank the others arrive within microseconds. With fewer, spinning takes
  // the core from the very rank that is waited for.
  spins_ = ranks <= static_cast<int>(std::thread::hardware_concurrency()) ? 2000 : 0;
}

template <class Ready>
void ThreadHub::wait(int rank, int other, const Call& call, const Ready& ready, Patience patience) {
  if (ready()) return;
  using Clock = std::chrono::steady_clock;
  Clock::time_point looked = Clock::now();
  Clock::duration waited{0};
  const Box& box = *boxes_[static_cast<std::size_t>(other)];
  for (int spin = 0;; ++spin) {
    const std::uint32_t bell = bell_.load();  // before the questions: a later change wakes us
    const bool left = box.left.load();
    if (ready()) return;
    if (aborted_.load()) throw Aborted();
    if (left)
      throw Error(ErrorKind::rank,
                  fmt::format("rank {} waits in {}, but rank {} has already finished", rank,
                              call.to_string(), other));
    if (spin < spins_) {
      pause_briefly();
      continue;
    }
    // A nap is short. If it was long, the process was stopped, and with it the other ranks.
    const Clock::time_point now = Clock::now();
    waited += std::min<Clock::duration>(now - looked, std::chrono::seconds(1));
    looked = now;
    if (patience == Patience::limited && waited > timeout_)
      throw Error(ErrorKind::rank, fmt::format("rank {} waited {} s in {} for rank {}, which did "
                                               "not come; --timeout-s sets the limit",
                                               rank, static_cast<double>(timeout_.count()) / 1000,
                                               call.to_string(), other));
    sleepers_.fetch_add(1);
    sleep_while(bell_, bell);
    sleepers_.fetch_sub(1);
  }
}

void ThreadHub::meet(int rank,
                     const Call& call,
                     std::span<const std::byte> bytes,
                     Patience patience) {
  Box& mine = *boxes_[static_cast<std::size_t>(rank)];
  const std::uint64_t number = mine.arrived.load(std::memory_order_relaxed) + 1;
  // Nobody still reads this copy: it was brought to the meeting before the last one, and all
  // ranks have come to the last one since.
  Brought& copy = mine.brought[number % 2];
  copy.call = call;
  copy.size = bytes.size();
  if (!bytes.empty()) std::memcpy(copy.bytes.data(), bytes.data(), bytes.size());
  mine.arrived.store(number);
  ring();

  for (int other = 0; other < ranks(); ++other) {
    const Box& box = *boxes_[static_cast<std::size_t>(other)];
    wait(
        rank, other, call, [&] { return box.arrived.load() >= number; }, patience);
  }
  const Call& first = boxes_[0]->brought[number % 2].call;
  for (int other = 1; other < ranks(); ++other) {
    const Call& theirs = boxes_[static_cast<std::size_t>(other)]->brought[number % 2].call;
    if (theirs.matches(first)) continue;
    // All ranks see it; the one that differs says so, which makes the message the same in every run.
    if (rank != other) throw Aborted();
    throw Error(ErrorKind::rank,
                fmt::format("the ranks' calls differ: rank 0 calls {}, rank {} calls {}",
                            first.to_string(), other, theirs.to_string()));
  }
}

std::span<const std::byte> ThreadHub::brought(int rank, int by) const {
  const std::uint64_t number =
      boxes_[static_cast<std::size_t>(rank)]->arrived.load(std::memory_order_relaxed);
  const Brought& copy = boxes_[static_cast<std::size_t>(by)]->brought[number % 2];
  return {copy.bytes.data(), copy.size};
}

void ThreadHub::post(int from, int to, const Call& call, std::span<const std::byte> bytes) {
  Channel& c = channel(from, to);
  wait(from, to, call, [&] { return c.taken.load() == c.posted.load(); });
  if (!c.brought) c.brought = std::make_unique<Brought>();
  c.brought->call = call;
  c.brought->size = bytes.size();
  if (!bytes.empty()) std::memcpy(c.brought->bytes.data(), bytes.data(), bytes.size());
  c.posted.fetch_add(1);
  ring();
}

void ThreadHub::take(int from, int to, const Call& call, std::span<std::byte> bytes) {
  Channel& c = channel(from, to);
  wait(to, from, call, [&] { return c.posted.load() > c.taken.load(); });
  const Call& sent = c.brought->call;
  if (sent.elements != call.elements || sent.dtype != call.dtype || sent.sequence != call.sequence)
    throw Error(ErrorKind::rank,
                fmt::format("send and recv differ: rank {} calls {}, rank {} calls {}", from,
                            sent.to_string(), to, call.to_string()));
  if (!bytes.empty()) std::memcpy(bytes.data(), c.brought->bytes.data(), bytes.size());
  c.taken.fetch_add(1);
  ring();
}

void ThreadHub::leave(int rank) {
  boxes_[static_cast<std::size_t>(rank)]->left.store(true);
  ring();
}

void ThreadHub::abort(const std::string& reason, ErrorKind kind) noexcept {
  {
    const std::lock_guard lock(reason_mutex_);
    if (!aborted_.load()) {
      reason_ = reason;
      kind_ = kind;
    }
    aborted_.store(true);
  }
  ring();
}

std::string ThreadHub::abort_reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

ErrorKind ThreadHub::abort_kind() const {
  const std::lock_guard lock(reason_mutex_);
  return kind_;
}

void ThreadHub::ring() {
  bell_.fetch_add(1);
  if (sleepers_.load() > 0) wake_all(bell_);
}

ThreadHub::Channel& ThreadHub::channel(int from, int to) {
  return *channels_[static_cast<std::size_t>(from * ranks() + to)];
}

}  // namespace tp

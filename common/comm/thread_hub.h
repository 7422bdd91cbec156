// Where ranks that are threads of one process meet. [introduced in chapter 01]
//
// The hub plays the part that shared memory, a network or NVLink plays elsewhere: ranks never see
// each other's tensors, only the copies that were put into the hub.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/group.h"

namespace tp {

class ThreadHub {
 public:
  // The most that a rank can bring to one meeting. Larger messages take several.
  static constexpr std::size_t kChunkBytes = 64 * 1024;

  ThreadHub(int ranks, std::chrono::milliseconds timeout);

  int ranks() const { return static_cast<int>(boxes_.size()); }

  // All ranks meet: brings `bytes`, waits until every rank has brought its own, and compares the
  // calls. Afterwards brought(rank, r) is what rank r brought, until the next meeting but one.
  // Errors: tp::Error (rank) if the calls differ (naming both), or a rank does not come.
  // With Patience::unlimited there is no time-out.
  void meet(int rank,
            const Call& call,
            std::span<const std::byte> bytes,
            Patience patience = Patience::limited);
  std::span<const std::byte> brought(int rank, int by) const;

  // One rank hands bytes to another, in order. post() returns when they are in the hub.
  void post(int from, int to, const Call& call, std::span<const std::byte> bytes);
  void take(int from, int to, const Call& call, std::span<std::byte> bytes);

  // The rank will not come to any more meetings.
  void leave(int rank);

  // Stops all ranks, which then throw Aborted. The first reason wins, and its kind.
  void abort(const std::string& reason, ErrorKind kind = ErrorKind::rank) noexcept;
  bool aborted() const { return aborted_.load(); }
  std::string abort_reason() const;
  ErrorKind abort_kind() const;

 private:
  struct Brought {
    Call call;
    std::size_t size = 0;
    std::array<std::byte, kChunkBytes> bytes;
  };
  struct alignas(64) Box {                  // written by its own rank, read by the others
    std::atomic<std::uint64_t> arrived{0};  // number of the last meeting that the rank came to
    std::atomic<bool> left{false};
    std::array<Brought, 2> brought;  // of even and of odd meetings
  };
  struct alignas(64) Channel {  // from one rank to another
    std::atomic<std::uint64_t> posted{0};
    std::atomic<std::uint64_t> taken{0};
    std::unique_ptr<Brought> brought;
  };

  // Waits until ready() is true. `other` is the rank that is waited for.
  template <class Ready>
  void wait(int rank,
            int other,
            const Call& call,
            const Ready& ready,
            Patience patience = Patience::limited);
  void ring();
  Channel& channel(int from, int to);

  std::chrono::milliseconds timeout_;
  int spins_;  // before a waiting thread sleeps
  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::unique_ptr<Channel>> channels_;

  std::atomic<std::uint32_t> bell_{
      0};  // changes with every event; sleeping ranks wait for a change
  std::atomic<int> sleepers_{0};

  std::atomic<bool> aborted_{false};
  mutable std::mutex reason_mutex_;
  std::string reason_;
  ErrorKind kind_ = ErrorKind::rank;
};

}  // namespace tp

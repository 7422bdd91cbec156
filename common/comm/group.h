// The host side of a set of ranks: small messages between them, and the way they fail together.
// [introduced in chapter 01]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/comm/call.h"
#include "common/core/error.h"

namespace tp {

// Thrown on a rank because another one failed first. Never the cause, so never reported as one.
class Aborted : public Error {
 public:
  Aborted() : Error(ErrorKind::rank, "stopped, because another rank failed") {}
};

// How long a rank waits for another one: until the time-out, or for ever.
enum class Patience : std::uint8_t { limited, unlimited };

// Control data of the ranks (plans, ids, minima). Tensors travel through a Communicator.
//
// Ranks: every rank calls the same functions in the same order.
// Errors: Aborted if another rank failed; tp::Error (rank) if a rank does not arrive within the
//         time-out, or has already left; the message names it.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void barrier() = 0;

  // Gives every rank the record of every rank, in rank order; size() * record.size() bytes that
  // stay valid until the next exchange. Every rank's record has the same size.
  virtual std::span<const std::byte> exchange(std::span<const std::byte> record) = 0;

  // Replaces `bytes` on every rank by those of `root`. Any size. With Patience::unlimited the others
  // wait for root as long as it takes: it may have nothing to say yet. If it fails they are stopped.
  virtual void broadcast(std::vector<std::byte>& bytes,
                         int root,
                         Patience patience = Patience::limited) = 0;

  // The audit of calls whose data moves elsewhere, between GPUs. All ranks meet, each with its call
  // of a communicator, and go on if the calls match. [chapters with --device cuda]
  // Errors: tp::Error (rank) naming both calls if they differ.
  virtual void meet(const Call& call) = 0;
  // The same for two ranks: `from` posts its send, `to` takes it with its recv. post may wait until
  // the call posted before was taken.
  virtual void post(const Call& call, int to) = 0;
  virtual void take(const Call& call, int from) = 0;

  // Wakes and stops all ranks. The first call wins: its reason is the one that is reported.
  virtual void abort(const std::string& reason) noexcept = 0;
  // Whether the ranks are being stopped: for loops that wait for something else than the group.
  virtual bool aborted() const noexcept = 0;

  // The smallest value of all ranks, on every rank.
  std::int64_t min(std::int64_t value);
};

}  // namespace tp

// NCCL calls in streams.
//
// A rank arrives when its stream reaches the call. The n-th collective of each rank must be the
// same one: that is checked at each arrival, before any data moves. The last to arrive moves the
// data of all. Nobody blocks a thread meanwhile, so one thread may drive all ranks, and a rank that
// never comes leaves the others waiting, as on GPUs.
#include <cstring>

#include "execution.h"
#include "memory.h"
#include "nccl_clique.h"
#include "report.h"
#include "settings.h"

namespace emulated_cuda {
namespace {

class NcclWork : public Work {
 public:
  NcclWork(std::shared_ptr<ncclComm> comm, std::vector<NcclCall> calls)
      : comm_(std::move(comm)), calls_(std::move(calls)) {}

  void accept(Stream& stream) override {
    const std::lock_guard lock(stream_mutex());
    for (const NcclCall& call : calls_) {
      parts_.push_back(
          {call, call.is_point_to_point() ? 0 : ++comm_->num_collectives, nullptr, nullptr});
      comm_->last_call = call.describe();
    }
    ++comm_->streams[&stream];
    stream_ = &stream;
  }

  bool run(Stream& stream) override {
    if (!is_aborted()) {
      for (Part& part : parts_) {
        arrive(part, stream.device);
      }
      if (!is_aborted() && !all_done()) {
        return false;
      }
    }
    for (Part& part : parts_) {
      if (part.round != nullptr) {
        part.round->left.acquire();
      }
      if (part.message != nullptr) {
        part.message->left.acquire();
      }
    }
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    if (--comm_->streams[stream_] == 0) {
      comm_->streams.erase(stream_);
    }
    return true;
  }

  std::vector<Stream*> waits_for() const override {
    std::vector<Stream*> result;
    for (const int rank : missing_ranks()) {
      if (const auto& other = comm_->clique->ranks[static_cast<std::size_t>(rank)]) {
        for (const auto& [stream, count] : other->streams) {
          result.push_back(stream);
        }
      }
    }
    return result;
  }

  std::unique_ptr<Work> again() const override { return std::make_unique<NcclWork>(comm_, calls_); }

  std::string describe() const override {
    std::string result;
    for (const Part& part : parts_) {
      result += text("rank %d in %s", comm_->rank, part.call.describe().c_str());
      if (part.number > 0) {
        result += text(", its call %llu", static_cast<unsigned long long>(part.number));
      }
    }
    for (const int rank : missing_ranks()) {
      const auto& other = comm_->clique->ranks[static_cast<std::size_t>(rank)];
      result += other == nullptr
                    ? text("; rank %d has no communicator any more", rank)
                    : text("; rank %d is missing: it made %llu calls, the last was %s", rank,
                           static_cast<unsigned long long>(other->num_collectives),
                           other->last_call.c_str());
    }
    return result;
  }

 private:
  struct Part {
    NcclCall call;
    std::uint64_t number;  // of the collective, 0 for a send or receive
    std::shared_ptr<Round> round;
    std::shared_ptr<Message> message;
  };

  bool is_aborted() const {
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    return comm_->aborted;
  }

  bool all_done() const {
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
      return (part.round != nullptr && part.round->done) ||
             (part.message != nullptr && part.message->done);
    });
  }

  // Ranks without which this cannot go on. With the mutex locked.
  std::vector<int> missing_ranks() const {
    std::vector<int> result;
    for (const Part& part : parts_) {
      if (part.message != nullptr && !part.message->done) {
        result.push_back(part.call.peer);
      }
      if (part.round != nullptr && !part.round->done) {
        for (int rank = 0; rank < comm_->clique->num_ranks; ++rank) {
          if (!part.round->has_arrived[static_cast<std::size_t>(rank)]) {
            result.push_back(rank);
          }
        }
      }
    }
    return result;
  }

  void arrive(Part& part, int device) {
    if (part.round != nullptr || part.message != nullptr || fails_here(part)) {
      return;
    }
    if (part.number == 0) {
      arrive_at_message(part, device);
    } else {
      arrive_at_round(part, device);
    }
  }

  // For TP_EMULATED_NCCL_FAULT: the call that never happens, and that only an asynchronous error
  // tells of.
  bool fails_here(const Part& part) {
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    if (settings().failing_rank != comm_->rank || settings().failing_call != part.number ||
        part.number == 0) {
      return false;
    }
    comm_->async_error = ncclSystemError;
    comm_->last_error = part.call.describe() + " failed, as TP_EMULATED_NCCL_FAULT asks";
    return true;
  }

  void arrive_at_round(Part& part, int device) {
    Clique& clique = *comm_->clique;
    const auto rank = static_cast<std::size_t>(comm_->rank);
    std::shared_ptr<Round> round;
    {
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      std::shared_ptr<Round>& place = clique.rounds[part.number];
      if (place == nullptr) {
        place = std::make_shared<Round>();
        place->calls.resize(static_cast<std::size_t>(clique.num_ranks));
        place->has_arrived.resize(static_cast<std::size_t>(clique.num_ranks));
      }
      round = place;
    }
    round->entered.release();  // before the others can see the arrival
    bool is_last = false;
    {
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      check_against_others(part, *round);
      round->calls[rank] = part.call;
      round->has_arrived[rank] = true;
      is_last = ++round->num_arrived == clique.num_ranks;
      if (is_last) {
        clique.rounds.erase(part.number);
      }
      part.round = round;
    }
    if (is_last) {
      round->entered.acquire();
      move_collective(*round, device);
      round->left.release();
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      round->done = true;
      announce_progress();
    }
  }

  void check_against_others(const Part& part, const Round& round) const {
    for (std::size_t other = 0; other < round.calls.size(); ++other) {
      if (round.has_arrived[other] && !round.calls[other].matches(part.call)) {
        report("mismatched collective",
               text("collective %llu of the communicator: rank %d calls %s, but rank %zu called %s",
                    static_cast<unsigned long long>(part.number), comm_->rank,
                    part.call.describe().c_str(), other, round.calls[other].describe().c_str()));
      }
    }
  }

  static void open_and_note(Execution& execution, const NcclCall& call, int rank, int num_ranks) {
    const std::size_t to_send = send_bytes(call, rank, num_ranks);
    const std::size_t to_receive = receive_bytes(call, rank, num_ranks);
    if (to_send > 0) {
      execution.open(
          require_device_memory(call.send, {call.function(), "sendbuff", to_send, kAnyDevice}));
      note_read(call.send, to_send);
    }
    if (to_receive > 0) {
      execution.open(require_device_memory(call.receive,
                                           {call.function(), "recvbuff", to_receive, kAnyDevice}));
      note_write(call.receive, to_receive);
    }
  }

  void move_collective(const Round& round, int device) const {
    if (round.calls[0].count == 0) {
      return;
    }
    Execution execution(device, round.calls[0].function(), {});
    for (int rank = 0; rank < comm_->clique->num_ranks; ++rank) {
      open_and_note(execution, round.calls[static_cast<std::size_t>(rank)], rank,
                    comm_->clique->num_ranks);
    }
    const Quiet quiet;
    carry_out(round.calls);
  }

  // The side that comes second moves the data.
  void arrive_at_message(Part& part, int device) {
    Clique& clique = *comm_->clique;
    const bool is_send = part.call.operation == NcclOperation::send;
    const int from = is_send ? comm_->rank : part.call.peer;
    const int to = is_send ? part.call.peer : comm_->rank;
    std::shared_ptr<Message> mine;
    std::shared_ptr<Message> other;
    {
      const Quiet quiet;
      mine = std::make_shared<Message>();
      mine->call = part.call;
    }
    mine->entered.release();
    {
      const Quiet quiet;
      const std::lock_guard lock(stream_mutex());
      part.message = mine;
      auto& theirs = (is_send ? clique.receives : clique.sends)[{from, to}];
      if (theirs.empty()) {
        (is_send ? clique.sends : clique.receives)[{from, to}].push_back(mine);
        return;
      }
      other = theirs.front();
      theirs.pop_front();
    }
    const NcclCall& send = is_send ? mine->call : other->call;
    const NcclCall& receive = is_send ? other->call : mine->call;
    if (send.count != receive.count || send.type != receive.type) {
      report("mismatched collective",
             text("rank %d calls %s, but rank %d calls %s", from, send.describe().c_str(), to,
                  receive.describe().c_str()));
    }
    other->entered.acquire();
    {
      Execution execution(device, part.call.function(), {});
      open_and_note(execution, send, from, clique.num_ranks);
      open_and_note(execution, receive, to, clique.num_ranks);
      const Quiet quiet;
      std::memcpy(receive.receive, send.send, send.count * bytes_of(send.type));
    }
    mine->left.release();
    other->left.release();
    const Quiet quiet;
    const std::lock_guard lock(stream_mutex());
    mine->done = other->done = true;
    announce_progress();
  }

  std::shared_ptr<ncclComm> comm_;
  std::vector<NcclCall> calls_;
  std::vector<Part> parts_;
  Stream* stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Work> make_nccl_work(std::shared_ptr<ncclComm> comm, std::vector<NcclCall> calls) {
  return std::make_unique<NcclWork>(std::move(comm), std::move(calls));
}

}  // namespace emulated_cuda

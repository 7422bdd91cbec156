// Ranks for the tests of their communication: threads with a communicator and a group, no device.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/thread_communicator.h"
#include "common/comm/thread_group.h"
#include "common/comm/thread_hub.h"
#include "common/core/error.h"

// How a rank ended.
struct RankEnd {
  std::string error;     // empty if the rank returned
  bool aborted = false;  // the error was that another rank failed
  bool of_kind_rank = false;
  std::chrono::milliseconds after{0};
};

// Runs body(hub, rank) on a thread for each rank and returns how each of them ended. A rank that throws
// stops the others.
inline std::vector<RankEnd> on_threads(int ranks,
                                       std::chrono::milliseconds timeout,
                                       const std::function<void(tp::ThreadHub&, int)>& body) {
  tp::ThreadHub hub(ranks, timeout);
  std::vector<RankEnd> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, &body, &end = ends[static_cast<std::size_t>(rank)], rank] {
      const auto start = std::chrono::steady_clock::now();
      try {
        body(hub, rank);
      } catch (const tp::Aborted& e) {
        end.error = e.what();
        end.aborted = true;
      } catch (const std::exception& e) {
        const auto* error = dynamic_cast<const tp::Error*>(&e);
        end.error = e.what();
        end.of_kind_rank = error != nullptr && error->kind() == tp::ErrorKind::rank;
        hub.abort(e.what());
      }
      hub.leave(rank);
      end.after = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - start);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

using RankBody = std::function<void(tp::Communicator&, tp::Group&)>;

// The same with a communicator and a group for the body.
inline std::vector<RankEnd> on_ranks(int ranks,
                                     std::chrono::milliseconds timeout,
                                     const RankBody& body) {
  return on_threads(ranks, timeout, [&body](tp::ThreadHub& hub, int rank) {
    tp::ThreadCommunicator comm(hub, rank);
    tp::ThreadGroup group(hub, rank);
    body(comm, group);
  });
}

// The errors of all ranks, one a line, empty if there was none.
inline std::string errors_of(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends)
    if (!end.error.empty()) text += end.error + "\n";
  return text;
}

// Runs one function on every rank. [introduced in chapter 01]
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/ledger.h"
#include "common/core/options.h"
#include "common/core/tensor.h"
#include "common/device/memory.h"
#include "common/parallel/rank_context.h"

namespace tp {

struct Launch {
  int tp_size = 2;
  std::string device = "cpu";    // or "cuda"
  std::string comm = "threads";  // between GPUs "nccl", "peer" or "peer-staged" (core/platform.h)
  // The part of a GPU's memory that its ranks together may use.
  double gpu_memory_utilization = 0.9;
  // How long a rank waits for another one before it gives up.
  std::chrono::milliseconds timeout{30'000};
  // Puts something between a rank and its communicator or group: faults, tracing. May be empty.
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>, Device&)>
      wrap_communicator;
  std::function<std::unique_ptr<Group>(std::unique_ptr<Group>)> wrap_group;

  // Of options with a chosen device and communicator (core/platform.h).
  static Launch from(const Options& options);
};

// What a rank leaves behind: copies in host memory, never a pointer into the rank.
struct RankOutput {
  std::map<std::string, Tensor> tensors;
  Ledger ledger;
  MemoryCounter memory;      // at the end, when `body` has returned
  Device* device = nullptr;  // the rank's, while `body` runs

  // Keeps a copy of a tensor, of the rank's device or of the host, under a name.
  void keep(const std::string& name, ConstTensorView tensor);
  // Errors: tp::Error naming the tensor if it was not kept.
  ConstTensorView tensor(const std::string& name) const;
};

// Calls body(context, output) on tp_size ranks, each a thread with a device of its own, and returns
// what they left, in rank order.
//
// Errors: the first rank that throws stops the others; its error comes out of here, with the rank
//         and its last communication call; its kind stays, and is `rank` for other exceptions. A rank that does not return although it was stopped
//         cannot be killed, being a thread: after two seconds of grace the whole process ends
//         with exit code 3 and the message.
std::vector<RankOutput> run_ranks(const Launch& launch,
                                  const std::function<void(RankContext&, RankOutput&)>& body);

}  // namespace tp

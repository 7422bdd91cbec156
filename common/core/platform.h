// What a program runs on. [introduced in chapter 01]
//
// That is decided when a program is linked: either with tp_cpu_only or with tp_cuda, which define the
// functions below. All other code is the same, and compiled once.
#pragma once

#include <string>

#include "common/core/options.h"

namespace tp {

struct Platform {
  std::string device;  // "cpu" or "cuda"
  std::string comm;    // "threads", "nccl", "peer", or "peer-staged" (peer, through the host)
  std::string text;    // for people: "cpu, 2 ranks as threads"
};

// Chooses from what the options ask for and what this machine has.
// Errors: tp::Error (device) if it has no such device or communicator; tp::Error (input) if the two
//         do not go together.
Platform choose_platform(const Options& options);

// The platform without a GPU.
Platform cpu_platform(const Options& options);

// What NCCL says about itself and its environment, for --nccl-info.
// Errors: tp::Error (device) if the program was built without NCCL.
std::string nccl_info();

}  // namespace tp

// NCCL, if this program was built with it. [introduced in chapter 01]
//
// Defined by nccl_communicator.cpp, or by without_nccl.cpp where the build found no NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/group.h"
#include "common/device/cuda/cuda_device.h"

namespace tp::cuda {

// "2.28.9", of the library that is loaded; nothing if the program was built without NCCL.
std::optional<std::string> nccl_version();

// Ranks:  all, each from its own thread with its GPU current; every rank needs a GPU of its own.
// Errors: tp::Error (device) if the program was built without NCCL; tp::Error (rank) if NCCL cannot
//         connect the ranks, or not within the time-out; Aborted if another rank failed.
std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     Group& group,
                                                     std::chrono::milliseconds timeout);

}  // namespace tp::cuda

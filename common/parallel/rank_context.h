// Everything a rank works with, in one place. [introduced in chapter 01]
#pragma once

#include "common/comm/communicator.h"
#include "common/comm/group.h"
#include "common/device/device.h"

namespace tp {

// Passed to every function that a rank runs, as its first argument. There are no globals.
struct RankContext {
  int rank;
  int tp_size;
  Device& device;
  Communicator& comm;
  Group& group;  // control data of the ranks, beside the tensors; used from chapter 05 on
};

}  // namespace tp

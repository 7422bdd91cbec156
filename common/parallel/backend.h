// Where the devices and the communicators of GPU ranks come from. [chapters with --device cuda]
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/group.h"
#include "common/device/device.h"

namespace tp {

struct Launch;

// What the ranks of one run share. It outlives them: memory that one rank reads and another owns
// is freed with it.
class Backend {
 public:
  virtual ~Backend() = default;

  // Ranks: each rank calls both once, from its own thread, the device first.
  virtual std::unique_ptr<Device> make_device(int rank) = 0;
  virtual std::unique_ptr<Communicator> make_communicator(Device& device, Group& group) = 0;
};

// For ranks on GPUs. Defined by the library that the program is linked with (core/platform.h).
// Errors: tp::Error (device) if there is no GPU.
std::unique_ptr<Backend> make_cuda_backend(const Launch& launch);

}  // namespace tp

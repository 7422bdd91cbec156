// What the environment asks of the emulation; README.md lists the variables.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated_cuda {

// In which order the threads of a block, and the blocks of a grid, begin. A fixed order hides
// races.
enum class Order : std::uint8_t { forward, reverse, random };

// What peer access between two devices does to data, for trying a program's own check of it.
enum class PeerFault : std::uint8_t { none, unchanged, swapped, bitflip };

struct Settings {
  int devices = 8;
  Order order = Order::forward;
  unsigned seed = 1;
  bool lazy = false;                         // streams run only when something waits for them
  std::size_t memory_bytes = 4096ull << 20;  // of each device
  bool peer_access = true;
  PeerFault peer_fault = PeerFault::none;  // between the next two
  int faulty_peer_a = -1;
  int faulty_peer_b = -1;
  double timeout_s = 60;  // without any progress, until a wait is reported as a hang
  int failing_rank = -1;  // of NCCL, and the number of the call that fails on it
  std::uint64_t failing_call = 0;
};

// Read once. Errors: a message and exit code 2 for a value that makes no sense.
const Settings& settings();

}  // namespace emulated_cuda

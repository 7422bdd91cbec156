// Device memory and pinned host memory: who owns which address, and guards around every allocation.
//
// Each cudaMalloc is a mapping of its own. Its last byte stands before an inaccessible page, so
// that an overrun faults. Sizes that are no multiple of 256 leave a few bytes in between: the
// canary, NaN in every format and checked after each kernel. Fresh memory is full of NaN as well.
// Freed memory stays inaccessible, so that its use is found long after.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>

#include "stack_trace.h"

namespace emulated_cuda {

inline constexpr int kPinnedHost = -1;  // in place of a device

struct Allocation {
  char* base = nullptr;  // what the program got
  std::size_t bytes = 0;
  char* mapping = nullptr;  // guard pages included
  std::size_t mapping_bytes = 0;
  int device = kPinnedHost;
  unsigned number = 0;  // counts all allocations of the process
  bool freed = false;
  int open_count = 0;  // executions that have it open
  StackTrace allocated_at;
  StackTrace freed_at;

  bool contains(const void* address) const { return address >= base && address < base + bytes; }
};

// Guards the list of allocations, and nothing else is locked while it is held.
std::recursive_mutex& memory_mutex();

// New memory full of NaN, or null where the system has none left. Device memory is closed to the
// program.
Allocation* allocate(std::size_t bytes, int device);

// Closes it for good. The address is not used again soon.
void free_allocation(Allocation& allocation);

// The allocation, living or freed, whose mapping (guards included) has this address; null if there
// is none.
Allocation* find_allocation(const void* address);

void open_allocation(Allocation& allocation);
void close_allocation(Allocation& allocation);  // Errors: a report if something wrote to its canary

// In words: "8 bytes past the end of allocation 3 (4096 bytes on device 0)", and where that was
// allocated and freed.
std::string describe_address(const void* address);

// Which memory an argument of an API function must be.
struct Need {
  const char* function;
  const char* argument;
  std::size_t bytes;  // from the pointer on
  int device;         // that must be able to reach it; kAnyDevice for copies
};
inline constexpr int kAnyDevice = -2;

// Returns the allocation. Errors: a report if the memory is not there, freed, too small or out of
// the device's reach.
Allocation& require_device_memory(const void* address, const Need& need);

}  // namespace emulated_cuda

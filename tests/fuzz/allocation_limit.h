// How much memory a reader may take. The program's operator new is replaced by one that counts.
#pragma once

#include <cstddef>

namespace tp {

// While one exists, the memory that is allocated and not yet given back must not grow by more than a
// small constant and so many times the size of the file; else the program ends with a message. What
// is there may take more room than its text, but a number that a file claims must never be allocated.
class AllocationLimit {
 public:
  static constexpr std::size_t kConstant = 64 << 10;
  // A JSON value takes 16 bytes and may stand there as "0,"; a list takes 40, as "[],".
  static constexpr std::size_t kTimesJson = 40;
  // Headers are not held as JSON: an entry takes about 250 bytes, of which 50 stand in the file.
  static constexpr std::size_t kTimesHeader = 8;
  // The smallest table of a topology is a line "GPU0" and takes 250 bytes, in a list that doubles.
  static constexpr std::size_t kTimesTopology = 200;

  AllocationLimit(std::size_t file_bytes, std::size_t times);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

  // The most that was allocated at a time, so far.
  static std::size_t peak_bytes();
};

}  // namespace tp

// The calls that led to a place, kept cheaply and shown as lines of source only when a report needs
// them.
#pragma once

#include <array>
#include <string>

namespace emulated_cuda {

class StackTrace {
 public:
  // The calling thread's, without the emulation's own frames.
  static StackTrace here();

  // Of one address of code only, for example the one that faulted.
  static StackTrace at(void* code_address);

  // One line per call, innermost first: function, file and line as far as the program was built
  // with -g1 or more.
  std::string text(const char* indent) const;

  bool empty() const { return count_ == 0; }

 private:
  std::array<void*, 16> frames_{};
  int count_ = 0;
};

// The last two parts of a path: enough to find the file, and the same on every machine.
std::string short_path(const std::string& path);

}  // namespace emulated_cuda

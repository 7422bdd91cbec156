// Where in the source a function of the CUDA language was called; reports show it.
#pragma once

namespace emulated_cuda {

// As a default argument it is the place of the call. (std::source_location is missing from clang
// 14.)
struct CallSite {
  const char* file;
  int line;

  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace emulated_cuda

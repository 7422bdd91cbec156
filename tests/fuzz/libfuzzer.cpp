// One target as a program of libFuzzer; TP_FUZZ_TARGET is the function.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

#ifndef TP_FUZZ_TARGET  // the build says which
#define TP_FUZZ_TARGET read_as_header
#endif

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tp::TP_FUZZ_TARGET({data, size});
  return 0;
}

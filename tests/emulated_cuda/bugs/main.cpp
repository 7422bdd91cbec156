// Planted bugs, one per run: the emulation must catch each of them, and nothing when they are
// mended.
//
// usage: emulated_cuda_bugs NAME      runs the code with that bug
//        emulated_cuda_bugs control   runs all of them mended
//        emulated_cuda_bugs list      prints the names
//
// Exit code: 0 the numbers are right, 1 they are wrong, 3 CUDA, cuBLAS or NCCL refused something,
// 66 a report of the emulation, others from the sanitizers.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "bug.h"

namespace emulated_test {
namespace {

std::vector<Bug> all_bugs() {
  std::vector<Bug> result;
  for (const auto& group : {kernel_bugs(), memory_bugs(), stream_bugs(), gemm_bugs(),
                            collective_bugs(), graph_bugs()}) {
    result.insert(result.end(), group.begin(), group.end());
  }
  return result;
}

// The bug of this name, or all of them mended. True if the numbers are right.
bool run(const std::string& name) {
  bool known = false;
  bool all_right = true;
  for (const Bug& bug : all_bugs()) {
    if (name == "list") {
      std::puts(bug.name);
    } else if (name == "control" && !bug.run(false)) {
      std::printf("%s: WRONG NUMBERS\n", bug.name);
      all_right = false;
    } else if (name == bug.name) {
      known = true;
      all_right = bug.run(true);
    }
  }
  if (!known && name != "list" && name != "control") {
    throw std::runtime_error("there is no bug of this name: " + name);
  }
  if (name != "list") {
    std::puts(all_right ? "RIGHT NUMBERS" : "WRONG NUMBERS");
  }
  return all_right;
}

}  // namespace
}  // namespace emulated_test

int main(int argc, char** argv) {
  try {
    return emulated_test::run(argc == 2 ? argv[1] : "list") ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("REFUSED: %s\n", error.what());
    std::fflush(stdout);
    std::_Exit(3);  // leave everything as it is, as a program that gives up does
  }
}

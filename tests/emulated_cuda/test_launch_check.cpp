// What common/device/cuda/check.h declares, for programs that use the emulation without the
// project's CUDA device.
#include "emulated/launch.h"
#include "test_kernels.h"

namespace tp::cuda {

void check_launch(cudaError_t result, std::string_view /*kernel*/) {
  emulated_test::check(result);
}

}  // namespace tp::cuda

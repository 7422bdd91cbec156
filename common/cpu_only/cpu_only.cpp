// What programs are linked with where there is no CUDA toolkit.
#include "common/core/error.h"
#include "common/core/platform.h"
#include "common/parallel/backend.h"

namespace tp {

namespace {

Error no_cuda(const std::string& what, const std::string& remedy) {
  return Error(ErrorKind::device, what +
                                      ": no GPU visible to this program (it was built without a "
                                      "CUDA device); " +
                                      remedy);
}

}  // namespace

Platform choose_platform(const Options& options) {
  if (options.device == "cuda") throw no_cuda("--device cuda", "use --device cpu");
  if (options.comm == "nccl" || options.comm == "peer")
    throw no_cuda("--comm " + options.comm, "use --comm threads");
  return cpu_platform(options);
}

std::string nccl_info() {
  throw no_cuda("--nccl-info", "build where there are a CUDA toolkit and NCCL");
}

std::unique_ptr<Backend> make_cuda_backend(const Launch&) {
  throw no_cuda("device cuda", "use the device cpu");
}

}  // namespace tp

// What programs are linked with where the build found no NCCL.
#include "common/comm/cuda/nccl.h"
#include "common/core/error.h"

namespace tp::cuda {

std::optional<std::string> nccl_version() {
  return std::nullopt;
}

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& /*device*/,
                                                     Group& /*group*/,
                                                     std::chrono::milliseconds /*timeout*/) {
  throw Error(ErrorKind::device,
              "--comm nccl: this program was built without NCCL; use --comm peer, or build where "
              "nccl.h and libnccl are installed");
}

}  // namespace tp::cuda

// What NCCL's functions share.
#pragma once

#include <memory>

#include "nccl_clique.h"

namespace emulated_cuda {

// The communicator of a handle. Errors: a report if there is none.
std::shared_ptr<ncclComm> comm_of(const ncclComm* handle, const char* function);

}  // namespace emulated_cuda

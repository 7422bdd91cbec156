#include "execution.h"

#include <algorithm>

#include "emulated/thread_index.h"
#include "memory.h"
#include "report.h"
#include "sanitizers.h"

namespace emulated_cuda {
namespace {

thread_local Execution* innermost = nullptr;

}  // namespace

Execution::Execution(int device, const char* work, CallSite launched_at)
    : device_(device), work_(work), launched_at_(launched_at), outer_(innermost) {
  innermost = this;
}

Execution::~Execution() {
  const Quiet quiet;
  spoilt_.clear();
  for (Allocation* const allocation : opened_) {
    close_allocation(*allocation);
  }
  opened_ = {};  // here, where the emulation is quiet
  innermost = outer_;
}

Execution* Execution::current() {
  return innermost;
}

void Execution::open(Allocation& allocation) {
  const Quiet quiet;
  if (std::find(opened_.begin(), opened_.end(), &allocation) != opened_.end()) {
    return;
  }
  open_allocation(allocation);
  opened_.push_back(&allocation);
  if (is_kernel() && allocation.device != kPinnedHost &&
      is_faulty_pair(device_, allocation.device)) {
    spoilt_.push_back(std::make_unique<SpoiltView>(allocation));
  }
}

std::string Execution::describe_current() {
  const Execution* const execution = innermost;
  if (execution == nullptr) {
    return "";
  }
  std::string result = text("  in %s on device %d", execution->work_, execution->device_);
  if (execution->is_kernel()) {
    result += text(", block (%u,%u,%u), thread (%u,%u,%u)\n  launched at ", blockIdx.x, blockIdx.y,
                   blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z) +
              text(execution->launched_at_);
  }
  return result + "\n";
}

}  // namespace emulated_cuda

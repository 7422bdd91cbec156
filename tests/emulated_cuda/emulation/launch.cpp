// Kernel launches: CUDA's own checks, and those of the pointers among the arguments.
#include "emulated/launch.h"

#include <map>

#include "block.h"
#include "block_memory.h"
#include "device.h"
#include "execution.h"
#include "memory.h"
#include "report.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

struct AllowedShared {
  std::mutex mutex;
  std::map<const void*, std::size_t> bytes_of_kernel;
};
AllowedShared& allowed_shared() {
  static AllowedShared* const result = new AllowedShared;
  return *result;
}

std::size_t most_dynamic_bytes(const void* kernel) {
  const Quiet quiet;
  const std::lock_guard lock(allowed_shared().mutex);
  const auto found = allowed_shared().bytes_of_kernel.find(kernel);
  return found == allowed_shared().bytes_of_kernel.end() ? BlockMemory::kDefaultDynamicBytes
                                                         : found->second;
}

bool is_legal(const dim3& grid, const dim3& block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads >= 1 && threads <= 1024 && block.z <= 64 && grid.x >= 1 && grid.y >= 1 &&
         grid.z >= 1 && grid.x <= 0x7fffffff && grid.y <= 0xffff && grid.z <= 0xffff;
}

// The argument and the template's parentheses: "(rms_norm_kernel<float, 4>)".
std::string kernel_name(std::string written) {
  if (!written.empty() && written.front() == '(' && written.back() == ')') {
    written = written.substr(1, written.size() - 2);
  }
  return written;
}

// A kernel in a stream; a graph launches it again and again.
struct LaunchedKernel {
  std::string name;
  CallSite site;
  Kernel kernel;
  std::vector<const void*> pointers;

  void operator()(Stream& stream) const {
    Execution execution(stream.device, name.c_str(), site);
    open_arguments(stream.device, execution);
    BlockRunner::of_this_thread().run(kernel, stream.thread_contexts);
  }

  void open_arguments(int device, Execution& execution) const {
    const Quiet quiet;
    for (std::size_t i = 0; i < pointers.size(); ++i) {
      if (pointers[i] != nullptr) {
        const std::string argument = text("argument %zu", i + 1);
        execution.open(
            require_device_memory(pointers[i], {name.c_str(), argument.c_str(), 1, device}));
      }
    }
  }
};

}  // namespace

void launch(const LaunchSettings& settings,
            std::initializer_list<PointerArgument> arguments,
            std::function<void()> thread_body) {
  Stream& stream = stream_of(settings.stream, settings.kernel_name);
  if (stream.device != current_device()) {
    fail(cudaErrorInvalidResourceHandle);
    return;
  }
  if (!is_legal(settings.grid, settings.block)) {
    fail(cudaErrorInvalidConfiguration);
    return;
  }
  if (settings.shared_bytes > most_dynamic_bytes(settings.kernel)) {
    fail(cudaErrorInvalidValue);
    return;
  }
  std::unique_ptr<Work> work;
  {
    const Quiet quiet;
    auto kernel = std::make_shared<LaunchedKernel>();
    kernel->name = "kernel " + kernel_name(settings.kernel_name);
    kernel->site = settings.site;
    kernel->kernel = {settings.grid, settings.block, settings.shared_bytes, std::move(thread_body)};
    kernel->pointers = arguments;
    for (std::size_t i = 0; i < kernel->pointers.size();
         ++i) {  // what is wrong already is said at the launch
      if (kernel->pointers[i] != nullptr) {
        const std::string argument = text("argument %zu", i + 1);
        require_device_memory(kernel->pointers[i],
                              {kernel->name.c_str(), argument.c_str(), 1, stream.device});
      }
    }
    work = std::make_unique<Task>(kernel->name, [kernel](Stream& where) { (*kernel)(where); });
  }
  static_cast<void>(enqueue(stream, std::move(work)));  // an error is found by cudaGetLastError
}

void allow_dynamic_shared(const void* kernel, std::size_t bytes) {
  const Quiet quiet;
  const std::lock_guard lock(allowed_shared().mutex);
  allowed_shared().bytes_of_kernel[kernel] = bytes;
}

}  // namespace emulated_cuda

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  using emulated_cuda::BlockMemory;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > BlockMemory::kMostDynamicBytes) {
    return emulated_cuda::fail(cudaErrorInvalidValue);
  }
  emulated_cuda::allow_dynamic_shared(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}

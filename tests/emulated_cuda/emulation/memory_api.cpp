// cudaMalloc, cudaFree and what else is about memory as a whole.
#include <cuda_runtime.h>

#include "capture.h"
#include "device.h"
#include "memory.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

// The allocation that begins at the address.
Allocation& owned(void* address, bool on_device, const char* function) {
  const Quiet quiet;
  Allocation* const allocation = find_allocation(address);
  if (allocation == nullptr || allocation->base != address ||
      (allocation->device != kPinnedHost) != on_device) {
    report("wrong pointer",
           text("%s: %p is not the start of an allocation of this kind: it points ", function,
                address) +
               describe_address(address));
  }
  if (allocation->freed) {
    report("freed twice", text("%s: %p points ", function, address) + describe_address(address));
  }
  return *allocation;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  *address = nullptr;
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  if (bytes == 0) {
    return cudaSuccess;
  }
  const int device = current_device();
  if (!take_memory(device, bytes)) {
    return fail(cudaErrorMemoryAllocation);
  }
  Allocation* const allocation = allocate(bytes, device);
  if (allocation == nullptr) {
    return_memory(device, bytes);
    return fail(cudaErrorMemoryAllocation);
  }
  *address = allocation->base;
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  Allocation& allocation = owned(address, true, "cudaFree");
  synchronize_device(allocation.device);  // as CUDA does
  return_memory(allocation.device, allocation.bytes);
  free_allocation(allocation);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  Allocation* const allocation = allocate(bytes > 0 ? bytes : 1, kPinnedHost);
  if (allocation == nullptr) {
    return fail(cudaErrorMemoryAllocation);
  }
  *address = allocation->base;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return cudaHostAlloc(address, bytes, 0);
}

cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  Allocation& allocation = owned(address, false, "cudaFreeHost");
  synchronize_device(current_device());
  free_allocation(allocation);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = free_memory(current_device());
  *total_bytes = settings().memory_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = cudaPointerAttributes{};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;
  const Quiet quiet;
  const Allocation* const allocation = find_allocation(address);
  if (allocation == nullptr || allocation->freed || !allocation->contains(address)) {
    return cudaSuccess;
  }
  const bool pinned = allocation->device == kPinnedHost;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = pinned ? current_device() : allocation->device;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = pinned ? const_cast<void*>(address) : nullptr;
  return cudaSuccess;
}

#include "device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "block_memory.h"
#include "capture.h"
#include "fault.h"
#include "sanitizers.h"
#include "settings.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct Devices {
  std::mutex mutex;
  std::array<std::size_t, 64> used_bytes{};
  std::set<std::pair<int, int>> peers;  // (a, b): kernels of a reach memory of b
};
Devices& devices() {
  static Devices* const result = new Devices;
  return *result;
}

bool exists(int device) {
  return device >= 0 && device < settings().devices;
}

}  // namespace

int current_device() {
  return chosen_device;
}

bool can_reach(int device, int other) {
  if (device == other) {
    return true;
  }
  const Quiet quiet;
  const std::lock_guard lock(devices().mutex);
  return devices().peers.count({device, other}) > 0;
}

bool take_memory(int device, std::size_t bytes) {
  const Quiet quiet;
  const std::lock_guard lock(devices().mutex);
  std::size_t& used = devices().used_bytes[static_cast<std::size_t>(device)];
  if (bytes > settings().memory_bytes - used) {
    return false;
  }
  used += bytes;
  return true;
}

void return_memory(int device, std::size_t bytes) {
  const Quiet quiet;
  const std::lock_guard lock(devices().mutex);
  devices().used_bytes[static_cast<std::size_t>(device)] -= bytes;
}

std::size_t free_memory(int device) {
  const Quiet quiet;
  const std::lock_guard lock(devices().mutex);
  return settings().memory_bytes - devices().used_bytes[static_cast<std::size_t>(device)];
}

cudaError_t fail(cudaError_t error) {
  return last_error = error;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return settings().devices > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  watch_faults();
  if (!exists(device)) {
    return fail(settings().devices > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
  }
  chosen_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof properties->name, "Emulated GPU");
  properties->totalGlobalMem = settings().memory_bytes;
  properties->sharedMemPerBlock = BlockMemory::kDefaultDynamicBytes;
  properties->sharedMemPerBlockOptin = BlockMemory::kMostDynamicBytes;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->multiProcessorCount = 4;
  properties->major = 9;
  properties->minor = 0;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = BlockMemory::kDefaultDynamicBytes;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = BlockMemory::kMostDynamicBytes;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    default:
      return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!exists(device) || length < 13) {
    return fail(exists(device) ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
  }
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                static_cast<unsigned>(device + 1) & 0xffu);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) {
    return fail(cudaErrorInvalidDevice);
  }
  *can = settings().peer_access && device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned /*flags*/) {
  if (!exists(peer) || peer == chosen_device) {
    return fail(cudaErrorInvalidDevice);
  }
  if (!settings().peer_access) {
    return fail(cudaErrorPeerAccessUnsupported);
  }
  const Quiet quiet;
  const std::lock_guard lock(devices().mutex);
  return devices().peers.insert({chosen_device, peer}).second
             ? cudaSuccess
             : fail(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t refused = refuse_in_capturing_thread()) {
    return refused;
  }
  synchronize_device(chosen_device);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// The emulated devices: which one a thread has chosen, and which can reach the memory of which.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace emulated_cuda {

// The calling thread's device, as cudaSetDevice left it.
int current_device();

// Whether kernels of one device may touch memory of the other: itself, or a peer whose access was
// enabled.
bool can_reach(int device, int other);

// Counts memory in and out. False if the device has not that much left.
bool take_memory(int device, std::size_t bytes);
void return_memory(int device, std::size_t bytes);
std::size_t free_memory(int device);

// Remembers the error for cudaGetLastError and returns it.
cudaError_t fail(cudaError_t error);

}  // namespace emulated_cuda

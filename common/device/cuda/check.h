// CUDA's status codes as errors. [introduced in chapter 01]
#pragma once

#include <cstddef>
#include <string_view>

#include <cuda_runtime.h>

namespace tp::cuda {

// Returns if result is cudaSuccess.
// Errors: tp::Error that names what was done, CUDA's name for the status and its words; of kind
// device if there is no GPU or no driver, input if memory is short, else rank.
void check(cudaError_t result, std::string_view what);

// The same behind a launch: TP_LAUNCH calls it with the kernel as it is written there.
void check_launch(cudaError_t result, std::string_view kernel);

// For sizes that a kernel was not written for; the host has refused them before, with better words.
// Errors: tp::Error (input) with these words unless `holds`.
void require(bool holds, std::string_view what);

// Without this a kernel gets at most 48 KiB of dynamic shared memory.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

}  // namespace tp::cuda

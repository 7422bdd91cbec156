// A report says what the program did wrong on its emulated GPUs, where, and ends the process.
#pragma once

#include <string>

#include "emulated/call_site.h"
#include "stack_trace.h"

namespace emulated_cuda {

// Unlike any exit code of the programs themselves.
inline constexpr int kReportExitCode = 66;

// Prints "emulated CUDA: KIND", the message, what was being executed and the stack, and ends the
// process: other ranks would wait for ever for this one. In a debugger, `break
// emulated_cuda::report` stops with everything still there.
[[noreturn]] void report(const std::string& kind, const std::string& message);

// The same with this stack instead of the caller's.
[[noreturn]] void report(const std::string& kind,
                         const std::string& message,
                         const StackTrace& where);

// "rms_norm.cu:45", with the folder.
std::string text(CallSite site);

// printf into a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulated_cuda

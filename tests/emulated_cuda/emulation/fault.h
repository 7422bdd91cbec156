// Memory faults: opening device memory for the kernel that may have it, and a report for all
// others.
#pragma once

namespace emulated_cuda {

// Every entry into the library calls it: it installs the handler, and gives the thread a stack for
// it.
void watch_faults();

}  // namespace emulated_cuda

#include "common/device/cpu/kernels.h"

namespace tp::cpu {

KernelList usable_kernels() {
  KernelList list{{&baseline::kKernels}, 1};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    list.variants[list.count++] = &avx2::kKernels;
  if (__builtin_cpu_supports("avx512f")) list.variants[list.count++] = &avx512::kKernels;
#endif
  return list;
}

}  // namespace tp::cpu

// The inner loops of the CPU device, compiled for several instruction sets.
// [introduced in chapter 01]
//
// All variants give the same bits as reference_ops.h. No standard library header may put inline
// code into kernels.cpp: the linker keeps one copy of such code, and it could be the one
// that only a newer processor can execute. So the interface is made of pointers.
#pragma once

#include <cstdint>

namespace tp::cpu {

// y[m, n] = sum over k of x[m, k] * w[n, k], in blocks [edge[b], edge[b + 1]).
struct MatmulTask {
  const float* x;
  std::int64_t x_stride;
  const void* w;  // float, or bf16 as std::uint16_t
  bool w_is_bf16;
  std::int64_t w_stride;
  float* y;
  std::int64_t y_stride;
  std::int64_t m, n;
  const std::int64_t* edge;
  int blocks;  // 1 to 8
};

struct Kernels {
  const char* name;  // "avx2"
  void (*matmul)(const MatmulTask& task);
  // Sum of a[k] * b[k].
  float (*dot)(const float* a, const float* b, std::int64_t length);
  // y[i] += a * x[i], fused.
  void (*add_scaled)(float a, const float* x, float* y, std::int64_t length);
};

// The variants that were built and that this processor can execute, the best one last.
struct KernelList {
  const Kernels* variants[3];
  int count;
};
KernelList usable_kernels();

namespace baseline {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace tp::cpu

// Compiled once per instruction set; TP_ISA names the namespace of the result.
#include "common/device/cpu/kernels.h"

#include "common/device/cpu/vector16.h"

namespace tp::cpu::TP_ISA {

namespace {

constexpr int kMaxBlocks = 8;
constexpr std::int64_t kLanes = 16;

inline float widen_one(float x) {
  return x;
}
inline float widen_one(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

// The lanes' sum, after the last length % 16 products have gone to the first lanes.
template <class A, class B>
float finish(Vector16 sum, const A* a, const B* b, std::int64_t done, std::int64_t length) {
  if (done == length) return sum16(sum);
  float lanes[kLanes];
  store16(lanes, sum);
  for (std::int64_t k = done; k < length; ++k)
    lanes[k - done] = __builtin_fmaf(widen_one(a[k]), widen_one(b[k]), lanes[k - done]);
  return sum16(load16(lanes));
}

float sum_as_tree(const float* values, int count) {
  if (count == 1) return values[0];
  return sum_as_tree(values, count / 2) + sum_as_tree(values + count / 2, count - count / 2);
}

// A tile of Rows tokens by Columns output features: every x and w that is loaded is used for
// a whole row or column of running sums, which stay in registers.
template <int Rows, int Columns, class W>
void tile(const MatmulTask& task, std::int64_t m, std::int64_t n) {
  float block_sums[Rows][Columns][kMaxBlocks];
  const float* x = task.x + m * task.x_stride;
  const W* w = static_cast<const W*>(task.w) + n * task.w_stride;
  for (int b = 0; b < task.blocks; ++b) {
    const std::int64_t begin = task.edge[b];
    const std::int64_t length = task.edge[b + 1] - begin;
    Vector16 sums[Rows][Columns];
    for (auto& row : sums)
      for (Vector16& sum : row) sum = zero16();
    std::int64_t k = 0;
    for (; k + kLanes <= length; k += kLanes) {
      Vector16 xs[Rows];
      for (int i = 0; i < Rows; ++i) xs[i] = load16(x + i * task.x_stride + begin + k);
      for (int j = 0; j < Columns; ++j) {
        const Vector16 wj = load16(w + j * task.w_stride + begin + k);
        for (int i = 0; i < Rows; ++i) sums[i][j] = fma16(xs[i], wj, sums[i][j]);
      }
    }
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < Columns; ++j)
        block_sums[i][j][b] = finish(sums[i][j], x + i * task.x_stride + begin,
                                     w + j * task.w_stride + begin, k, length);
  }
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Columns; ++j)
      task.y[(m + i) * task.y_stride + n + j] = sum_as_tree(block_sums[i][j], task.blocks);
}

template <int Rows, class W>
void tile_row(const MatmulTask& task, std::int64_t m, std::int64_t n_begin, std::int64_t n_end) {
  std::int64_t n = n_begin;
  for (; n + 2 <= n_end; n += 2) tile<Rows, 2, W>(task, m, n);
  for (; n < n_end; ++n) tile<Rows, 1, W>(task, m, n);
}

// Weights are the large operand: a strip of them stays in the cache while all tokens pass by.
template <class W>
void matmul_of(const MatmulTask& task) {
  constexpr std::int64_t kStrip = 64;
  for (std::int64_t n = 0; n < task.n; n += kStrip) {
    const std::int64_t n_end = n + kStrip < task.n ? n + kStrip : task.n;
    std::int64_t m = 0;
    for (; m + 2 <= task.m; m += 2) tile_row<2, W>(task, m, n, n_end);
    for (; m < task.m; ++m) tile_row<1, W>(task, m, n, n_end);
  }
}

void matmul(const MatmulTask& task) {
  if (task.w_is_bf16)
    matmul_of<std::uint16_t>(task);
  else
    matmul_of<float>(task);
}

float dot(const float* a, const float* b, std::int64_t length) {
  Vector16 sum = zero16();
  std::int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes) sum = fma16(load16(a + k), load16(b + k), sum);
  return finish(sum, a, b, k, length);
}

void add_scaled(float a, const float* x, float* y, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i) y[i] = __builtin_fmaf(a, x[i], y[i]);
}

}  // namespace

extern const Kernels kKernels{TP_ISA_NAME, matmul, dot, add_scaled};

}  // namespace tp::cpu::TP_ISA

// Compiled once per instruction set; TP_ISA names the namespace of the result.
#include "common/device/cpu/kernels.h"

#include "common/device/cpu/vector16.h"

namespace tp::cpu::TP_ISA {

namespace {

constexpr int kMaxBlocks = 8;
constexpr std::int64_t kSums = 16;
constexpr int kTileColumns = 4;
constexpr std::int64_t kStripRows = 48, kStripColumns = 16;
constexpr std::int64_t kManyRows = 24;          // so many rows of x repay a copy of w
constexpr std::int64_t kPackedFeatures = 2048;  // a longer block of w is used where it lies

// The features k, k + 1, ... of a row. Behind its end x goes on with -0 and w with 0: their
// product, -0, changes no sum, not even one that is -0.
template <class T>
Vector load_part(const T* row, std::int64_t k, std::int64_t length, T behind_the_end) {
  if (k + kWidth <= length) return load(row + k);
  T part[kWidth];
  for (int i = 0; i < kWidth; ++i) part[i] = k + i < length ? row[k + i] : behind_the_end;
  return load(part);
}

// out[i][j] = the sum of x[i][k] * w[j][k] over one block of features. Feature k goes to running
// sum k mod 16. As many sums as registers hold are made at a time; each x and w that is loaded is
// used for a whole row or column of them.
template <int Rows, class W>
void tile(const float* const (&x)[Rows],
          const W* const (&w)[kTileColumns],
          std::int64_t length,
          float* out,
          std::int64_t out_stride) {
  Sums16 sums[Rows][kTileColumns];
  for (int part = 0; part < kParts; ++part) {
    Vector s[Rows][kTileColumns];
    for (auto& row : s)
      for (Vector& sum : row) sum = zeros();
    const auto add_products = [&](auto load_x, auto load_w) {
      Vector xs[Rows];
      for (int i = 0; i < Rows; ++i) xs[i] = load_x(x[i]);
      for (int j = 0; j < kTileColumns; ++j) {
        const Vector wj = load_w(w[j]);
        for (int i = 0; i < Rows; ++i) s[i][j] = fma(xs[i], wj, s[i][j]);
      }
    };
    std::int64_t k = part * kWidth;
    for (; k + kWidth <= length; k += kSums) {
      const auto load_at_k = [k](const auto* row) { return load(row + k); };
      add_products(load_at_k, load_at_k);
    }
    if (k < length)
      add_products([&](const float* row) { return load_part(row, k, length, -0.0f); },
                   [&](const W* row) { return load_part(row, k, length, W{0}); });
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < kTileColumns; ++j) sums[i][j].part[part] = s[i][j];
  }
  for (int i = 0; i < Rows; ++i) add_up(sums[i], out + i * out_stride);
}

// Some rows of x by some columns of the output, and the sum of each block of each output.
struct Strip {
  std::int64_t m, rows, n, columns;
  float sums[kMaxBlocks][kStripRows * kStripColumns];
};

template <int Rows, class W>
void tile_row(const MatmulTask& task,
              Strip& strip,
              int b,
              std::int64_t i,
              const W* w,
              std::int64_t w_stride) {
  const float* x[Rows];
  for (int r = 0; r < Rows; ++r) x[r] = task.x + (strip.m + i + r) * task.x_stride + task.edge[b];
  for (std::int64_t j = 0; j < strip.columns; j += kTileColumns) {
    const W* columns[kTileColumns];  // the last column is repeated to fill the tile
    for (int c = 0; c < kTileColumns; ++c)
      columns[c] = w + (j + c < strip.columns ? j + c : strip.columns - 1) * w_stride;
    tile<Rows, W>(x, columns, task.edge[b + 1] - task.edge[b],
                  strip.sums[b] + i * kStripColumns + j, kStripColumns);
  }
}

template <class W>
void multiply_block(
    const MatmulTask& task, Strip& strip, int b, const W* w, std::int64_t w_stride) {
  std::int64_t i = 0;
  for (; i + kTileRows <= strip.rows; i += kTileRows)
    tile_row<kTileRows, W>(task, strip, b, i, w, w_stride);
  for (; i < strip.rows; ++i) tile_row<1, W>(task, strip, b, i, w, w_stride);
}

// Copies one block of the strip's columns of w into neighbouring rows, widened to float: many rows
// of x will read it, and there it fits the cache.
template <class W>
void pack(const W* w,
          std::int64_t w_stride,
          std::int64_t columns,
          std::int64_t length,
          float* packed,
          std::int64_t packed_stride) {
  for (std::int64_t j = 0; j < columns; ++j, w += w_stride, packed += packed_stride)
    for (std::int64_t k = 0; k < length; k += kWidth)
      store(packed + k, load_part(w, k, length, W{0}));
}

// Adds the blocks first, ..., first + count - 1 as a binary tree; the total goes to block `first`.
void add_blocks(Strip& strip, int first, int count) {
  if (count == 1) return;
  const int middle = first + count / 2;
  add_blocks(strip, first, count / 2);
  add_blocks(strip, middle, count - count / 2);
  const std::int64_t width = (strip.columns + kTileColumns - 1) / kTileColumns * kTileColumns;
  for (std::int64_t i = 0; i < strip.rows; ++i)
    for (std::int64_t j = i * kStripColumns; j < i * kStripColumns + width; ++j)
      strip.sums[first][j] += strip.sums[middle][j];
}

std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

template <class W>
void matmul_of(const MatmulTask& task) {
  const bool many_rows = task.m >= kManyRows;
  const std::int64_t strip_columns = many_rows ? kStripColumns : kTileColumns;
  alignas(64) float packed[kStripColumns * kPackedFeatures];  // rows begin on cache lines
  Strip strip;
  for (strip.n = 0; strip.n < task.n; strip.n += strip_columns) {
    strip.columns = smaller(strip_columns, task.n - strip.n);
    for (strip.m = 0; strip.m < task.m; strip.m += kStripRows) {
      strip.rows = smaller(kStripRows, task.m - strip.m);
      for (int b = 0; b < task.blocks; ++b) {
        const W* w = static_cast<const W*>(task.w) + strip.n * task.w_stride + task.edge[b];
        const std::int64_t length = task.edge[b + 1] - task.edge[b];
        if (many_rows && length <= kPackedFeatures) {
          const std::int64_t stride = (length + kSums - 1) / kSums * kSums;
          pack(w, task.w_stride, strip.columns, length, packed, stride);
          multiply_block<float>(task, strip, b, packed, stride);
        } else {
          multiply_block(task, strip, b, w, task.w_stride);
        }
      }
      add_blocks(strip, 0, task.blocks);
      for (std::int64_t i = 0; i < strip.rows; ++i)
        for (std::int64_t j = 0; j < strip.columns; ++j)
          task.y[(strip.m + i) * task.y_stride + strip.n + j] =
              strip.sums[0][i * kStripColumns + j];
    }
  }
}

void matmul(const MatmulTask& task) {
  if (task.w_is_bf16)
    matmul_of<std::uint16_t>(task);
  else
    matmul_of<float>(task);
}

float dot(const float* a, const float* b, std::int64_t length) {
  Sums16 sums[4] = {};
  for (std::int64_t k = 0; k < length;)
    for (Vector& sum : sums[0].part) {
      sum = fma(load_part(a, k, length, -0.0f), load_part(b, k, length, 0.0f), sum);
      k += kWidth;
    }
  float out[4];
  add_up(sums, out);
  return out[0];
}

void add_scaled(float a, const float* x, float* y, std::int64_t length) {
  std::int64_t i = 0;
  for (; i + kWidth <= length; i += kWidth)
    store(y + i, fma(all_lanes(a), load(x + i), load(y + i)));
  for (; i < length; ++i) y[i] = __builtin_fmaf(a, x[i], y[i]);
}

}  // namespace

extern const Kernels kKernels{TP_ISA_NAME, matmul, dot, add_scaled};

}  // namespace tp::cpu::TP_ISA

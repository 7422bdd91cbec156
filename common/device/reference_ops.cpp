#include "common/device/reference_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace tp::reference {

namespace {

constexpr int kLanes = 16;

// Element i of row r, widened to f32.
float element(ConstTensorView x, std::int64_t r, std::int64_t i) {
  if (x.dtype == DType::bf16) return to_float(x.row<bf16>(r)[i]);
  if (x.dtype == DType::f16) return to_float(x.row<f16>(r)[i]);
  return x.row<float>(r)[i];
}

std::vector<float> widen_row(ConstTensorView x, std::int64_t r) {
  std::vector<float> row(static_cast<std::size_t>(x.row_elements()));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = element(x, r, static_cast<std::int64_t>(i));
  return row;
}

// Calls use(elements) with the elements of a bias or a norm weight, in the type they are stored in.
template <class Use>
void with_elements(ConstTensorView x, const Use& use) {
  x.shape = {1, x.shape.elements()};
  if (x.dtype == DType::bf16)
    use(x.row<bf16>(0));
  else if (x.dtype == DType::f16)
    use(x.row<f16>(0));
  else
    use(x.row<float>(0));
}

// The first half of the values, summed, plus the second half, summed.
float sum_as_tree(const float* values, int count) {
  if (count == 1) return values[0];
  return sum_as_tree(values, count / 2) + sum_as_tree(values + count / 2, count - count / 2);
}

// out = in / sqrt(mean(in^2) + eps) * weight.
template <class W>
void normalise(const float* in, const W* weight, std::int64_t width, float eps, float* out) {
  const float mean_of_squares = dot(in, in, width) / static_cast<float>(width);
  const float scale = 1.0f / std::sqrt(mean_of_squares + eps);
  for (std::int64_t n = 0; n < width; ++n) out[n] = in[n] * scale * to_float(weight[n]);
}

float apply(Activation act, float x) {
  if (act == Activation::silu) return x / (1.0f + std::exp(-x));
  return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
}

}  // namespace

float dot(const float* a, const float* b, std::int64_t length) {
  std::array<float, kLanes> lanes{};
  for (std::int64_t k = 0; k < length; ++k) {
    float& lane = lanes[static_cast<std::size_t>(k % kLanes)];
    lane = std::fma(a[k], b[k], lane);
  }
  for (std::size_t apart = kLanes / 2; apart > 0; apart /= 2)
    for (std::size_t j = 0; j < apart; ++j) lanes[j] += lanes[j + apart];
  return lanes[0];
}

void matmul(ConstTensorView x, ConstTensorView weight, TensorView y, const SumBlocks& blocks) {
  for (std::int64_t n = 0; n < weight.rows(); ++n) {
    const std::vector<float> w = widen_row(weight, n);
    for (std::int64_t m = 0; m < x.rows(); ++m) {
      std::array<float, kSumBlocks> sums{};
      for (std::size_t b = 0; b < static_cast<std::size_t>(blocks.count); ++b) {
        const std::int64_t begin = blocks.edge[b];
        sums[b] = dot(x.row<float>(m) + begin, w.data() + begin, blocks.edge[b + 1] - begin);
      }
      y.row<float>(m)[n] = sum_as_tree(sums.data(), std::max(blocks.count, 1));
    }
  }
}

void add_bias(TensorView x, ConstTensorView bias) {
  with_elements(bias, [&](const auto* b) {
    for (std::int64_t m = 0; m < x.rows(); ++m) {
      float* row = x.row<float>(m);
      for (std::int64_t n = 0; n < x.row_elements(); ++n) row[n] += to_float(b[n]);
    }
  });
}

void add(TensorView x, ConstTensorView y) {
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    float* sum = x.row<float>(m);
    const float* addend = y.row<float>(m);
    for (std::int64_t n = 0; n < x.row_elements(); ++n) sum[n] += addend[n];
  }
}

void gated_activation(ConstTensorView gate, ConstTensorView up, TensorView y, Activation act) {
  for (std::int64_t m = 0; m < y.rows(); ++m) {
    const float* g = gate.row<float>(m);
    const float* u = up.row<float>(m);
    float* out = y.row<float>(m);
    for (std::int64_t n = 0; n < y.row_elements(); ++n) out[n] = apply(act, g[n]) * u[n];
  }
}

void activate(TensorView x, Activation act) {
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    float* row = x.row<float>(m);
    for (std::int64_t n = 0; n < x.row_elements(); ++n) row[n] = apply(act, row[n]);
  }
}

void embed(std::span<const std::int32_t> ids, ConstTensorView table, Range rows, TensorView y) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const bool mine = rows.contains(ids[i]);
    for (std::int64_t n = 0; n < table.row_elements(); ++n)
      y.row<float>(row)[n] = mine ? element(table, ids[i] - rows.begin, n) : 0.0f;
  }
}

void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) {
  const std::int64_t width = x.row_elements();
  with_elements(weight, [&](const auto* w) {
    for (std::int64_t m = 0; m < x.rows(); ++m)
      normalise(x.row<float>(m), w, width, eps, y.row<float>(m));
  });
}

void rms_norm_heads(TensorView x, ConstTensorView weight, float eps) {
  const std::int64_t head_dim = weight.shape.elements();
  with_elements(weight, [&](const auto* w) {
    for (std::int64_t m = 0; m < x.rows(); ++m) {
      for (std::int64_t head = 0; head < x.row_elements(); head += head_dim) {
        float* const values = x.row<float>(m) + head;
        normalise(values, w, head_dim, eps, values);
      }
    }
  });
}

void select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(x.row<float>(rows[i]), x.row_elements(),
                y.row<float>(static_cast<std::int64_t>(i)));
}

void rope(TensorView x, const RopeTable& table, std::span<const std::int32_t> positions) {
  const std::int64_t half = table.cos.shape()[1];
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    const std::int32_t position = positions[static_cast<std::size_t>(m)];
    const float* cos = table.cos.row<float>(position);
    const float* sin = table.sin.row<float>(position);
    for (std::int64_t head = 0; head < x.row_elements(); head += 2 * half) {
      float* low = x.row<float>(m) + head;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a * cos[i] - b * sin[i];
        high[i] = b * cos[i] + a * sin[i];
      }
    }
  }
}

void store_kv(ConstTensorView keys,
              ConstTensorView values,
              std::span<const std::int32_t> slot_mapping,
              const KvLayer& kv) {
  const std::int64_t head_dim = kv.head_dim();
  for (std::int64_t m = 0; m < keys.rows(); ++m) {
    const std::int64_t slot = slot_mapping[static_cast<std::size_t>(m)];
    const std::int64_t block = slot / kv.block_size(), place = slot % kv.block_size();
    for (std::int64_t head = 0; head < kv.kv_heads_local(); ++head) {
      const std::int64_t offset = (head * kv.block_size() + place) * head_dim;
      std::copy_n(keys.row<float>(m) + head * head_dim, head_dim,
                  kv.keys.row<float>(block) + offset);
      std::copy_n(values.row<float>(m) + head * head_dim, head_dim,
                  kv.values.row<float>(block) + offset);
    }
  }
}

namespace {

// Where one head of the token at `position` lies in a pool of keys or values.
const float* head_in_pool(ConstTensorView pool,
                          std::span<const std::int32_t> block_table,
                          std::int64_t position,
                          std::int64_t head) {
  const std::int64_t block_size = pool.shape[2], head_dim = pool.shape[3];
  const std::int32_t block = block_table[static_cast<std::size_t>(position / block_size)];
  return pool.row<float>(block) + (head * block_size + position % block_size) * head_dim;
}

}  // namespace

void row_argmax(ConstTensorView x, std::span<std::int32_t> columns) {
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    const float* const row = x.row<float>(m);
    const float* const end = row + x.row_elements();
    const float* largest = end;
    bool has_nan = false;
    for (const float* p = row; p != end; ++p) {
      has_nan |= std::isnan(*p);
      if (largest == end || *p > *largest) largest = p;
    }
    const bool found = !has_nan && largest != end && std::isfinite(*largest);
    columns[static_cast<std::size_t>(m)] = found ? static_cast<std::int32_t>(largest - row) : -1;
  }
}

void row_top_k(ConstTensorView x,
               std::int64_t k,
               std::span<std::int32_t> columns,
               std::span<float> values) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(x.row_elements()));
  const std::int64_t kept = std::min<std::int64_t>(k, x.row_elements());
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    const float* const row = x.row<float>(m);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                      [&](std::int32_t a, std::int32_t b) {
                        return row[a] > row[b] || (row[a] == row[b] && a < b);
                      });
    for (std::int64_t i = 0; i < k; ++i) {
      const auto place = static_cast<std::size_t>(m * k + i);
      columns[place] = i < kept ? order[static_cast<std::size_t>(i)] : -1;
      values[place] = i < kept ? row[columns[place]] : -INFINITY;
    }
  }
}

void attention(ConstTensorView q,
               const KvLayer& kv,
               const HeadShard& heads,
               const BatchView& batch,
               TensorView y,
               std::int64_t window) {
  const std::int64_t head_dim = kv.head_dim();
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  for (const SequenceRows& sequence : batch.sequences) {
    for (std::int64_t m = sequence.rows.begin; m < sequence.rows.end; ++m) {
      const std::int64_t position = sequence.first_position + m - sequence.rows.begin;
      const Range seen = attended_positions(position, window);
      std::vector<float> weights(static_cast<std::size_t>(seen.size()));
      for (std::int64_t head = 0; head < heads.query.size(); ++head) {
        const std::int64_t kv_head = heads.kv_local(head);
        const float* query = q.row<float>(m) + head * head_dim;
        for (std::int64_t t = seen.begin; t < seen.end; ++t)
          weights[static_cast<std::size_t>(t - seen.begin)] =
              dot(query, head_in_pool(kv.keys, sequence.block_table, t, kv_head), head_dim) * scale;
        const float largest = *std::max_element(weights.begin(), weights.end());
        float sum = 0;
        for (float& w : weights) {
          w = std::exp(w - largest);
          sum += w;
        }
        float* out = y.row<float>(m) + head * head_dim;
        std::fill_n(out, head_dim, 0.0f);
        for (std::int64_t t = seen.begin; t < seen.end; ++t) {
          const float weight = weights[static_cast<std::size_t>(t - seen.begin)];
          const float* value = head_in_pool(kv.values, sequence.block_table, t, kv_head);
          for (std::int64_t i = 0; i < head_dim; ++i) out[i] = std::fma(weight, value[i], out[i]);
        }
        for (std::int64_t i = 0; i < head_dim; ++i) out[i] /= sum;
      }
    }
  }
}

}  // namespace tp::reference

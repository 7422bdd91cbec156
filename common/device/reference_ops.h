// Every operation of a device in plain loops: the lesson, and what fast kernels are tested against.
// [introduced in chapter 01]
//
// The order of every sum is part of the definition (see sum_blocks.h): fast kernels add in the same
// order, and their expected difference to these functions is 0. Shapes and dtypes are those of
// Device (device.h), which has checked them.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/device.h"

namespace tp::reference {

// Sum of a[k] * b[k] with 16 running sums: k goes to sum k mod 16, each product is fused into it
// (std::fma); then sums 8 apart are added, then 4, 2 and 1 apart. These are the lanes of a vector
// register.
float dot(const float* a, const float* b, std::int64_t length);

void matmul(ConstTensorView x, ConstTensorView weight, TensorView y, const SumBlocks& blocks);
void add_bias(TensorView x, ConstTensorView bias);
void add(TensorView x, ConstTensorView y);
void gated_activation(ConstTensorView gate, ConstTensorView up, TensorView y, Activation act);
void activate(TensorView x, Activation act);
void embed(std::span<const std::int32_t> ids, ConstTensorView table, Range rows, TensorView y);
void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y);
void rms_norm_heads(TensorView x, ConstTensorView weight, float eps);
void select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y);
void rope(TensorView x, const RopeTable& table, std::span<const std::int32_t> positions);
void store_kv(ConstTensorView keys,
              ConstTensorView values,
              std::span<const std::int32_t> slot_mapping,
              const KvLayer& kv);
void row_argmax(ConstTensorView x, std::span<std::int32_t> columns);
void row_top_k(ConstTensorView x,
               std::int64_t k,
               std::span<std::int32_t> columns,
               std::span<float> values);
void attention(ConstTensorView q,
               const KvLayer& kv,
               const HeadShard& heads,
               const BatchView& batch,
               TensorView y,
               std::int64_t window = kNoWindow);

}  // namespace tp::reference

// The weights of a decoder layer, whole, as a checkpoint stores them.
#pragma once

#include <cstdint>

#include "common/core/matrix.h"
#include "common/parallel/sharded_attention.h"

namespace tp {

struct LayerSizes {
  std::int64_t hidden, heads, kv_heads, head_dim, intermediate;

  std::int64_t q_size() const { return heads * head_dim; }  // not always hidden
  std::int64_t kv_size() const { return kv_heads * head_dim; }
};

struct StoredLinear {
  Tensor weight;  // [out, in]
  Matrix bias;    // [1, out]

  WholeLinear whole() const { return {weight.view(), bias.view()}; }
};

struct LayerWeights {
  LayerSizes sizes;
  StoredLinear q, k, v, o;
  StoredLinear gate, up, down;
  Matrix input_norm, post_attention_norm;  // [1, hidden]
};

inline constexpr float kNormEps = 1e-6f;

// Random weights that keep the size of what they multiply, and random biases.
LayerWeights make_layer(const LayerSizes& sizes, DType dtype, std::uint64_t seed);
StoredLinear make_linear(std::int64_t out, std::int64_t in, DType dtype, std::uint64_t seed);
// 1, more or less.
Matrix make_norm(std::int64_t hidden, std::uint64_t seed);

}  // namespace tp

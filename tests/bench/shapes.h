// The matrix products that are measured, and their operands.
#pragma once

#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/core/matrix.h"

namespace tp {

// y [M, N] = x [M, K] W^T. Small weights stay in the processor's cache, as those of a small model
// do. Of large ones there are several copies in turn, so that each product reads them from memory.
struct Product {
  Product(const benchmark::State& state, DType dtype)
      : x(random_matrix(state.range(0), state.range(1), 1)), y(state.range(0), state.range(2)) {
    constexpr std::int64_t kSmallBytes = 2 << 20, kMemoryBytes = 192 << 20;
    const Matrix w = random_matrix(state.range(2), state.range(1), 2);
    do weights.push_back(to_tensor(w, dtype));
    while (bytes() > kSmallBytes &&
           static_cast<std::int64_t>(weights.size()) * bytes() < kMemoryBytes);
  }

  ConstTensorView next_weight() {
    turn = (turn + 1) % weights.size();
    return weights[turn];
  }
  std::int64_t bytes() const { return weights.front().view().bytes(); }

  // Adds columns: arithmetic done (a product and a sum are two operations), weights read.
  void count(benchmark::State& state) const {
    using benchmark::Counter;
    const double operations =
        2.0 * static_cast<double>(y.values.size() * x.values.size()) / static_cast<double>(x.rows);
    state.counters["flops"] = Counter(operations, Counter::kIsIterationInvariantRate);
    state.counters["weight_bytes"] =
        Counter(static_cast<double>(bytes()), Counter::kIsIterationInvariantRate);
  }

  Matrix x, y;
  std::vector<Tensor> weights;
  std::size_t turn = 0;
};

// The products of the bundled model's MLP for one token, then those of a larger one.
inline void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"M", "K", "N"});
  bench->Args({1, 256, 352})->Args({1, 704, 256});
  for (const std::int64_t tokens : {1, 16, 256}) bench->Args({tokens, 2048, 5632});
}

}  // namespace tp

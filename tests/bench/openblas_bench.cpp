// The same products with OpenBLAS, one thread. It has no bf16 weights.
#include <cblas.h>

#include "tests/bench/shapes.h"

namespace tp {

namespace {

void openblas(benchmark::State& state) {
  openblas_set_num_threads(1);
  Product product(state, DType::f32);
  const auto m = static_cast<int>(product.y.rows), n = static_cast<int>(product.y.cols);
  const auto k = static_cast<int>(product.x.cols);
  for (auto _ : state)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, product.x.values.data(), k,
                product.next_weight().row<float>(0), k, 0, product.y.values.data(), n);
  product.count(state);
}
BENCHMARK(openblas)->Apply(shapes);

}  // namespace

}  // namespace tp

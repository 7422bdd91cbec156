// The CPU device's matmul, one thread.
#include "common/device/device.h"
#include "tests/bench/shapes.h"

namespace tp {

namespace {

void matmul(benchmark::State& state, DType dtype) {
  Product product(state, dtype);
  const auto device = make_cpu_device();
  const SumBlocks blocks = SumBlocks::whole(product.x.cols);
  for (auto _ : state)
    device->matmul(product.x.view(), product.next_weight(), product.y.view(), blocks);
  product.count(state);
}
BENCHMARK_CAPTURE(matmul, f32, DType::f32)->Apply(shapes);
BENCHMARK_CAPTURE(matmul, bf16, DType::bf16)->Apply(shapes);

}  // namespace

}  // namespace tp

// all_reduce on two ranks that are threads.
#include <chrono>

#include <benchmark/benchmark.h>

#include "common/parallel/run_ranks.h"

namespace tp {

namespace {

void all_reduce(benchmark::State& state) {
  constexpr int kCalls = 10'000;
  using Clock = std::chrono::steady_clock;
  for (auto _ : state) {
    double seconds = 0;
    run_ranks(Launch{}, [&](RankContext& ctx, RankOutput&) {
      Tensor x = ctx.device.allocate({state.range(0)}, DType::f32, "activations");
      ctx.comm.barrier("start");
      const Clock::time_point start = Clock::now();
      for (int call = 0; call < kCalls; ++call) ctx.comm.all_reduce(x, "bench");
      if (ctx.rank == 0) seconds = std::chrono::duration<double>(Clock::now() - start).count();
    });
    state.SetIterationTime(seconds / kCalls);
  }
}
BENCHMARK(all_reduce)->ArgName("floats")->Arg(256)->Arg(4096)->UseManualTime()->Iterations(5);

}  // namespace

}  // namespace tp

// What the control plane costs per step on rank 0: scheduling, the message, its hash, the sampler.
#include <benchmark/benchmark.h>

#include "common/core/random.h"
#include "common/engine/sampler.h"
#include "common/engine/scheduler.h"

namespace tp {

namespace {

constexpr std::int64_t kContext = 1000, kBlockSize = 16;

// A decode step of so many sequences with 1000 tokens each.
BatchPlan decode_step(std::int64_t sequences) {
  BatchPlan plan;
  const std::vector<std::int32_t> table(static_cast<std::size_t>(blocks_for(kContext, kBlockSize)),
                                        7);
  for (std::int32_t id = 0; id < sequences; ++id)
    plan.add(id, std::vector<std::int32_t>{5}, kContext - 1, table, kBlockSize, 1);
  return plan;
}

void plan_encode_decode(benchmark::State& state) {
  const BatchPlan plan = decode_step(state.range(0));
  BatchPlan received;
  std::vector<std::byte> bytes;
  for (auto _ : state) {
    plan.encode(bytes);
    received.decode(bytes);
  }
  state.counters["bytes"] = static_cast<double>(bytes.size());
}
BENCHMARK(plan_encode_decode)->ArgName("sequences")->Arg(1)->Arg(16)->Arg(256);

void plan_hash(benchmark::State& state) {
  const BatchPlan plan = decode_step(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(plan.fingerprint());
}
BENCHMARK(plan_hash)->ArgName("sequences")->Arg(1)->Arg(16)->Arg(256);

void schedule_decode(benchmark::State& state) {
  const std::int64_t sequences = state.range(0);
  const std::int64_t room = std::int64_t{1} << 20;  // tokens each can grow to
  Scheduler scheduler({sequences, 4096, 4096, room}, sequences * blocks_for(room, kBlockSize),
                      kBlockSize);
  for (std::int32_t id = 0; id < sequences; ++id) scheduler.add(id, {1, 2, 3});
  BatchPlan plan;
  for (auto _ : state) {
    scheduler.next(plan);
    for (const PlannedSequence& s : plan.sequences) scheduler.append(s.id, 5);
  }
}
BENCHMARK(schedule_decode)->ArgName("sequences")->Arg(1)->Arg(16)->Arg(256)->Iterations(2000);

void sample_from(benchmark::State& state, const SamplingParams& params) {
  std::vector<float> logits(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 20 * uniform(1, i);
  const ConstTensorView row = view_of(logits.data(), {1, state.range(0)});
  std::uint64_t draw = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sample(row, params, draw++));
}
BENCHMARK_CAPTURE(sample_from, greedy, SamplingParams{})->ArgName("vocab")->Arg(4353)->Arg(128256);
BENCHMARK_CAPTURE(sample_from, top_k_40, (SamplingParams{.temperature = 0.8, .top_k = 40}))
    ->ArgName("vocab")
    ->Arg(4353)
    ->Arg(128256);
BENCHMARK_CAPTURE(sample_from, top_p_095, (SamplingParams{.temperature = 0.8, .top_p = 0.95}))
    ->ArgName("vocab")
    ->Arg(4353)
    ->Arg(128256);

}  // namespace

}  // namespace tp

// How fast one thread reads memory: the limit of a product with one token.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

namespace {

void read_memory(benchmark::State& state) {
  const std::vector<std::uint64_t> words(std::size_t{192} << 17, 1);  // 192 MiB
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (const std::uint64_t word : words) sum += word;
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(words.size() * 8));
}
BENCHMARK(read_memory)->Unit(benchmark::kMillisecond);

}  // namespace

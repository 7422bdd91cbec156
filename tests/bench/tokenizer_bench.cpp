// How long the texts of the golden files take to encode and to decode, repeated to a megabyte.
// A tokenizer is never what a model waits for: these take about 0.05 s, which is 0.1 ms for a prompt
// of 1000 tokens; with a vocabulary of 150,000 tokens it is a few times as much.
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>

#include "common/model/json.h"
#include "common/model/tokenizer.h"

namespace tp {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(TP_SOURCE_DIR) / "tests" / "golden" / "tokenizers";

std::string megabyte_of_texts(const std::string& style) {
  std::string texts;
  for (const nlohmann::json& golden : read_json(kGolden / style / "cases.json"))
    texts += golden.at("text").get<std::string>() + "\n";
  std::string megabyte;
  while (megabyte.size() < 1'000'000) megabyte += texts;
  return megabyte;
}

void encode(benchmark::State& state, const std::string& style) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / style / "tokenizer.json");
  const std::string text = megabyte_of_texts(style);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void decode(benchmark::State& state, const std::string& style) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / style / "tokenizer.json");
  const auto ids = tokenizer.encode(megabyte_of_texts(style));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids, false));
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(ids.size()),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(encode, gpt2, "gpt2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, llama2, "llama2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, llama3, "llama3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, qwen2, "qwen2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, smollm2, "smollm2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, llama2, "llama2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, llama3, "llama3")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tp

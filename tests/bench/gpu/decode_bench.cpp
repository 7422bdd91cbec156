// Decode steps of a whole model with random weights, in the shape of a Llama with 8 billion
// parameters.
#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "common/comm/cuda/visible_gpus.h"
#include "common/core/error.h"
#include "common/engine/model_runner.h"
#include "common/parallel/run_ranks.h"
#include "tests/bench/gpu/bench.h"
#include "tests/bench/gpu/random_checkpoint.h"
#include "tests/temp_folder.h"

namespace tp::bench {

namespace {

constexpr std::int64_t kBlockSize = 16;

struct DecodeSizes {
  LlamaSizes model;
  std::vector<std::int64_t> batches{1, 8, 32, 128};
  std::int64_t context = 1024;  // tokens in the cache before the first step
  std::int64_t steps = 25;      // that are measured

  static DecodeSizes small() {
    return {{.hidden = 64,
             .layers = 2,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 16,
             .intermediate = 96,
             .vocab = 300,
             .max_tokens = 128},
            {1, 3},
            40,
            2};
  }
  // The first steps are not measured: one sets memory aside, the next one is captured.
  static constexpr std::int64_t kWarmUp = 3;
  std::int64_t tokens() const { return context + kWarmUp + steps; }
  std::int64_t blocks() const { return blocks_for(tokens(), kBlockSize); }  // of a sequence
  std::int64_t kv_bytes_per_token() const {
    return model.layers * 2 * model.kv_heads * model.head_dim * 2;
  }
  // All weights but the embedding, of which a step reads a few rows only.
  std::int64_t weight_bytes() const {
    const std::int64_t layer = model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads) +
                               3 * model.hidden * model.intermediate + 2 * model.hidden;
    return 2 * (model.layers * layer + model.hidden + model.vocab * model.hidden);
  }
  std::int64_t embedding_bytes() const { return 2 * model.vocab * model.hidden; }
};

// Runs greedy decode steps of `batch` sequences and prints the median time. The cache holds zeros:
// the time does not depend on what the tokens were.
void bench_batch(const RankContext& ctx,
                 Decoder& decoder,
                 const DecodeSizes& sizes,
                 std::int64_t batch,
                 bool captured) {
  using Clock = std::chrono::steady_clock;
  ModelRunner runner(ctx, decoder, true, captured);
  std::vector<std::vector<std::int32_t>> tables;
  for (std::int64_t i = 0; i < batch; ++i) {
    tables.emplace_back(static_cast<std::size_t>(sizes.blocks()));
    std::iota(tables.back().begin(), tables.back().end(),
              static_cast<std::int32_t>(i * sizes.blocks()));
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 1);
  std::vector<double> times;
  BatchPlan plan;
  for (std::int64_t step = 0; step < DecodeSizes::kWarmUp + sizes.steps; ++step) {
    const Clock::time_point begin = Clock::now();
    plan.clear();
    plan.step = static_cast<std::uint64_t>(step) + 1;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      plan.add(static_cast<std::int32_t>(i), std::span(&tokens[i], 1), sizes.context + step,
               tables[i], kBlockSize, 1);
    ctx.device.row_argmax(runner.lead(plan), tokens);
    if (std::ranges::count(tokens, -1) > 0)
      throw Error(ErrorKind::rank, fmt::format("step {}: logits that are not finite", step));
    if (step >= DecodeSizes::kWarmUp)
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (step >= DecodeSizes::kWarmUp && runner.graphs().replayed() != captured)
      throw Error(ErrorKind::rank,
                  fmt::format("step {}: {}replayed", step, captured ? "not " : ""));
  }
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  nlohmann::ordered_json line{
      {"kind", "decode"},
      {"mode", captured ? "captured" : "eager"},
      {"batch", batch},
      {"context", sizes.context},
      {"us", times[times.size() / 2]},
      {"bytes", sizes.weight_bytes() + batch * sizes.context * sizes.kv_bytes_per_token()}};
  if (captured) line["launches"] = runner.graphs().operations();
  print_line(line);
}

}  // namespace

void bench_decode(const Settings& settings) {
  const DecodeSizes sizes = settings.small ? DecodeSizes::small() : DecodeSizes{};
  Launch launch;
  launch.tp_size = 1;
  launch.device = "cuda";
  launch.comm = "peer";
  run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    constexpr std::int64_t kRestBytes = std::int64_t{2} << 30;  // activations, logits, workspaces
    const std::int64_t rest = settings.small ? 0 : kRestBytes;
    std::vector<std::int64_t> batches;
    for (const std::int64_t batch : sizes.batches) {
      const std::int64_t needed = sizes.weight_bytes() + sizes.embedding_bytes() + rest +
                                  batch * sizes.blocks() * kBlockSize * sizes.kv_bytes_per_token();
      if (needed <= ctx.device.free_bytes()) {
        batches.push_back(batch);
        continue;
      }
      print_line({{"kind", "skipped"},
                  {"name", fmt::format("decode, batch {}", batch)},
                  {"why", fmt::format("needs {} MiB of the GPU's memory, {} are free", needed >> 20,
                                      ctx.device.free_bytes() >> 20)}});
    }
    if (batches.empty()) return;

    const TempFolder folder;
    write_random_checkpoint(sizes.model, folder.path());
    const ModelConfig config = ModelConfig::load(folder.path());
    std::optional<Decoder> decoder;
    {
      const Weights weights = Weights::open(folder.path(), config, std::nullopt);
      DecoderLimits limits;
      limits.max_model_len = sizes.tokens();
      limits.max_num_batched_tokens = limits.max_logit_rows = batches.back();
      limits.block_size = kBlockSize;
      limits.num_blocks = batches.back() * sizes.blocks();
      limits.kv_dtype = DType::bf16;
      decoder.emplace(ctx, config, weights, DecoderShard::of(config, 0, 1), limits);
    }
    std::filesystem::remove(folder.path() / "model.safetensors");  // gigabytes, perhaps of memory
    for (const bool captured : {true, false})
      for (const std::int64_t batch : batches) bench_batch(ctx, *decoder, sizes, batch, captured);
  });
}

}  // namespace tp::bench

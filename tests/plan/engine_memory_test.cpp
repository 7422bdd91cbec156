// The plan of a rank's memory beside what the decoder allocates.
#include "common/plan/engine_memory.h"

#include <filesystem>

#include "common/model/weights.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"

using namespace tp;

namespace {

constexpr std::int64_t kBlock = 3, kBlocks = 7;

void compare(const std::filesystem::path& folder, int tp_size) {
  CAPTURE(folder.filename().string(), tp_size);
  PlanInput input = plan_of(ModelConfig::load(folder));
  input.uneven = true;
  input.weights.format = number_format("bf16");
  input.kv = number_format("f32");
  const DecoderLimits limits{20, 11, 5, kBlock, kBlocks};
  const Weights weights = Weights::open(folder, input.config, DType::bf16);
  Launch launch;
  launch.tp_size = tp_size;
  const auto ranks = run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    Decoder(ctx, input.config, weights, DecoderShard::of(input.config, ctx.rank, tp_size), limits);
  });
  for (CardPlan& card : plan_layout(input, tp_size, 1).cards) {
    const StepMemory step = StepMemory::of(input.config, limits, card.place.rank, tp_size, 1);
    card.overhead = {0, 0, step.activation_bytes};
    MemoryByTag planned = engine_memory(card, step, kBlocks, kBlock);
    planned.erase("workspace");  // nothing has run
    MemoryByTag allocated;
    for (const auto& [tag, use] : ranks[static_cast<std::size_t>(card.place.rank)].memory.uses())
      allocated[tag] = use.peak_bytes;
    CHECK(allocated == planned);
  }
}

}  // namespace

TEST_CASE("the decoder allocates on each rank what was planned") {
  const std::filesystem::path golden = std::filesystem::path(TP_SOURCE_DIR) / "tests/golden/models";
  for (const char* model : {"llama_all_biases", "qwen3_own_head_dim", "smollm2_9_heads"})
    for (const int tp_size : {1, 2, 3, 8}) {
      if (std::string(model) != "smollm2_9_heads" &&
          tp_size > ModelConfig::load(golden / model).num_attention_heads)
        continue;
      compare(golden / model, tp_size);
    }
}

TEST_CASE("a sliding window bounds the scores of attention") {
  ModelConfig config = qwen3_4b();
  const DecoderLimits limits{4096, 16, 1, 16, 256};
  CHECK(StepMemory::of(config, limits, 0, 1, 1000).workspace_bytes == 1008 * 4);
  for (std::int64_t& window : config.sliding_windows) window = 100;
  CHECK(StepMemory::of(config, limits, 0, 1, 1000).workspace_bytes == 112 * 4);
  CHECK(StepMemory::of(config, limits, 0, 1, 50).workspace_bytes == 64 * 4);
  config.sliding_windows[3] = kNoWindow;
  CHECK(StepMemory::of(config, limits, 0, 1, 1000).workspace_bytes == 1008 * 4);
}

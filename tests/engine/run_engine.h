// Models in the engine, on some ranks.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/engine/engine.h"
#include "common/parallel/run_ranks.h"

namespace tp {

// TP_TEST_DEVICE=cuda runs the same tests on virtual ranks of a GPU, real or emulated, with weights
// widened to f32. What they then must hold is the golden bound; the same bits only the CPU promises.
inline bool on_a_gpu() {
  const char* const device = std::getenv("TP_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda";
}

struct Loaded {
  ModelConfig config;
  Weights weights;

  // The bundled model.
  Loaded() : Loaded(std::filesystem::path(TP_SOURCE_DIR) / "models" / "austen-5m") {}
  explicit Loaded(const std::filesystem::path& folder)
      : config(ModelConfig::load(folder)),
        weights(
            Weights::open(folder, config, on_a_gpu() ? std::optional(DType::f32) : std::nullopt)) {}
};

inline Launch launch_of(int tp_size) {
  Launch launch;
  launch.tp_size = tp_size;
  if (on_a_gpu()) {
    launch.device = "cuda";
    launch.comm = "peer";
  }
  return launch;
}

// How the engine is set up. Without num_blocks: as many as max_num_seqs at max_model_len need.
struct EngineSetup {
  std::int64_t max_num_seqs = 16;
  std::int64_t max_num_batched_tokens = 64;
  std::int64_t chunked_prefill_size = 64;
  std::int64_t max_model_len = 128;
  std::int64_t block_size = 4;
  std::int64_t num_blocks = 0;
  bool check_plans = true;

  SchedulerLimits scheduler() const {
    return {max_num_seqs, max_num_batched_tokens, chunked_prefill_size, max_model_len};
  }
  DecoderLimits decoder() const {
    const std::int64_t all = max_num_seqs * blocks_for(max_model_len, block_size);
    return {max_model_len, max_num_batched_tokens, max_num_seqs, block_size,
            num_blocks > 0 ? num_blocks : all};
  }
};

struct EngineRun {
  std::vector<Completion> done;  // in the order of the requests
  Scheduler::Counters counters;
  std::int64_t free_blocks = 0;  // at the end
};

// Runs `drive` with the engine on rank 0, while the other ranks follow.
inline EngineRun drive_engine(const Loaded& model,
                              const Launch& launch,
                              const EngineSetup& setup,
                              const std::function<void(Engine&)>& drive) {
  EngineRun run;
  run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    Decoder decoder(ctx, model.config, model.weights,
                    DecoderShard::of(model.config, ctx.rank, ctx.tp_size), setup.decoder());
    ModelRunner runner(ctx, decoder, setup.check_plans);
    if (ctx.rank != 0) return runner.follow();
    Engine engine(runner, setup.scheduler());
    drive(engine);
    runner.stop();
    run.counters = engine.scheduler().counters();
    run.free_blocks = engine.scheduler().blocks().free_blocks();
    for (std::int32_t id = 0; id < engine.num_requests(); ++id) run.done.push_back(engine.take(id));
  });
  return run;
}

// All requests at once, to their ends.
inline EngineRun run_engine(const Loaded& model,
                            int tp_size,
                            const EngineSetup& setup,
                            const std::vector<Request>& requests) {
  return drive_engine(model, launch_of(tp_size), setup, [&](Engine& engine) {
    for (const Request& request : requests) engine.add_request(request);
    while (!engine.idle()) engine.step();
  });
}

}  // namespace tp

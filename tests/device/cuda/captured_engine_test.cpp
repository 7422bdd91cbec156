// The engine on GPUs with captured decode steps: token for token and bit for bit what it gives with
// every step run operation by operation.
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "common/core/random.h"
#include "common/engine/engine.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"
#include "tests/engine/run_engine.h"
#include "tests/engine/tiny_model.h"

using namespace tp;

namespace {

Launch on_gpus(const std::string& comm, int tp_size) {
  Launch launch = launch_of(tp_size);
  launch.device = "cuda";
  launch.comm = comm;
  return launch;
}

// Requests of different lengths, greedy and sampled.
std::vector<Request> some_requests(std::size_t count) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    Request request;
    for (std::uint64_t t = 0; t < 1 + (i * 5) % 11; ++t)
      request.prompt_ids.push_back(
          static_cast<std::int32_t>(random_bits(i, t) % TinyModel::kVocab));
    request.max_new_tokens = 3 + static_cast<std::int64_t>(i * 4) % 9;
    if (i % 2 == 1) request.sampling = {0.9, 10, 0.95, i};
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  std::vector<Completion> done;
  Engine::Times times;
  std::int64_t operations = 0;
  std::string why_not;
  std::uint64_t collectives = 0;  // calls of rank 0, those of replays among them
};

constexpr EngineSetup kSetup{.max_num_seqs = 4,
                             .max_num_batched_tokens = 16,
                             .chunked_prefill_size = 4,
                             .max_model_len = 32};

// What every rank has: its decoder and its runner.
void on_runners(const Launch& launch,
                const EngineSetup& setup,
                bool capture_steps,
                const std::function<void(const RankContext&, ModelRunner&)>& lead) {
  const TinyModel files;
  const Loaded model(files.folder());
  run_ranks(launch, [&](RankContext& ctx, RankOutput&) {
    DecoderLimits limits = setup.decoder();
    if (ctx.device.can_capture()) limits.kv_dtype = DType::bf16;
    Decoder decoder(ctx, model.config, model.weights,
                    DecoderShard::of(model.config, ctx.rank, ctx.tp_size), limits);
    ModelRunner runner(ctx, decoder, true, capture_steps);
    if (ctx.rank != 0) return runner.follow();
    lead(ctx, runner);
    runner.stop();
  });
}

Outcome run(const Launch& launch, bool capture_steps, EngineSetup setup = kSetup) {
  Outcome out;
  on_runners(launch, setup, capture_steps, [&](const RankContext& ctx, ModelRunner& runner) {
    Engine engine(runner, setup.scheduler(), 1 << 20);
    for (const Request& request : some_requests(9)) engine.add_request(request);
    while (!engine.idle()) engine.step();
    for (std::int32_t id = 0; id < engine.num_requests(); ++id) out.done.push_back(engine.take(id));
    out.times = engine.times();
    out.operations = runner.graphs().operations();
    out.why_not = runner.graphs().why_not();
    out.collectives = static_cast<std::uint64_t>(ctx.comm.ledger().total().calls);
  });
  return out;
}

void require_same(const Outcome& a, const Outcome& b) {
  REQUIRE(a.done.size() == b.done.size());
  for (std::size_t i = 0; i < a.done.size(); ++i) {
    INFO("request " << i << ": " << a.done[i].error << b.done[i].error);
    REQUIRE(a.done[i].ids == b.done[i].ids);
    REQUIRE(!a.done[i].ids.empty());
    REQUIRE(a.done[i].logits.size() == a.done[i].ids.size());
    REQUIRE(b.done[i].logits.size() == a.done[i].ids.size());
    for (std::size_t t = 0; t < a.done[i].logits.size(); ++t)
      REQUIRE(same_bits(a.done[i].logits[t], b.done[i].logits[t]));
  }
  REQUIRE(a.collectives == b.collectives);
}

// Step 1 of a text is its prompt of `tokens` tokens, the others are one token each.
BatchPlan plan_of(std::uint64_t step,
                  const std::vector<std::int64_t>& positions,
                  std::int64_t tokens) {
  BatchPlan plan;
  plan.step = step;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    std::vector<std::int32_t> ids, table;
    for (std::int64_t t = 0; t < tokens; ++t)
      ids.push_back(static_cast<std::int32_t>(
          random_bits(step, static_cast<std::uint64_t>(t) + 7 * i) % TinyModel::kVocab));
    for (std::int32_t b = 0; b < 8; ++b) table.push_back(static_cast<std::int32_t>(i) + 4 * b);
    table.resize(static_cast<std::size_t>(blocks_for(positions[i] + tokens, kSetup.block_size)));
    plan.add(static_cast<std::int32_t>(i), ids, positions[i], table, kSetup.block_size, 1);
  }
  return plan;
}

bool has_gpus(int count) {
  int found = 0;
  return cudaGetDeviceCount(&found) == cudaSuccess && found >= count;
}

}  // namespace

TEST_CASE("captured decode steps give the engine the bits of steps one by one") {
  for (const std::string comm : {"nccl", "peer"}) {
    const Launch launch = on_gpus(comm, 1);
    const Outcome captured = run(launch, true), eager = run(launch, false);
    INFO(comm);
    require_same(captured, eager);
    CHECK(captured.times.replayed_steps > 0);
    CHECK(captured.times.eager_steps > 0);  // the first of each size
    CHECK(captured.operations > 20);        // two layers
    CHECK(captured.why_not.empty());
    CHECK(eager.times.replayed_steps == 0);
    CHECK(eager.operations == 0);
    CHECK(captured.times.replayed_steps + captured.times.eager_steps == eager.times.eager_steps);
    CHECK_THAT(eager.why_not, ContainsSubstring("as asked for (--enforce-eager"));
  }
}

TEST_CASE("captured steps survive preemptions") {
  EngineSetup tight = kSetup;
  tight.num_blocks = 8;
  const Launch launch = on_gpus("nccl", 1);
  const Outcome captured = run(launch, true, tight), eager = run(launch, false, tight);
  require_same(captured, eager);
  CHECK(captured.times.replayed_steps > 0);
}

TEST_CASE("ranks with NCCL capture their steps, collectives and all") {
  if (!has_gpus(2)) return;
  const Launch launch = on_gpus("nccl", 2);
  const Outcome captured = run(launch, true), eager = run(launch, false);
  require_same(captured, eager);
  CHECK(captured.times.replayed_steps > 0);
}

TEST_CASE("ranks that meet on the host run their steps one by one, and say why") {
  const Launch launch = on_gpus("peer", 2);
  const Outcome asked = run(launch, true), eager = run(launch, false);
  require_same(asked, eager);
  CHECK(asked.times.replayed_steps == 0);
  CHECK(asked.operations == 0);
  CHECK_THAT(asked.why_not, ContainsSubstring("the ranks meet on the host in every collective"));
  Launch on_cpu = launch;
  on_cpu.device = "cpu";
  CHECK(run(on_cpu, true).why_not.empty());
}

TEST_CASE("batches of all sizes and kinds take turns with captured steps") {
  // Positions that the sequences have reached, and how many tokens each gets.
  struct Turn {
    std::vector<std::int64_t> positions;
    std::int64_t tokens;
    bool replayed;
  };
  const std::vector<Turn> turns{{{0, 0, 0}, 3, false},   {{3, 3, 3}, 1, false}, {{4}, 1, false},
                                {{4, 4, 4}, 1, true},    {{5, 5}, 1, false},    {{5}, 1, true},
                                {{5, 5, 5}, 4, false},   {{9, 9, 9}, 1, true},  {{10, 10}, 1, true},
                                {{10, 10, 10}, 1, true}, {{11}, 1, true}};
  std::vector<std::vector<Tensor>> logits(2);
  for (const bool capture : {false, true}) {
    on_runners(
        on_gpus("nccl", 1), kSetup, capture, [&](const RankContext& ctx, ModelRunner& runner) {
          std::uint64_t step = 0;
          for (const Turn& turn : turns) {
            const ConstTensorView view = runner.lead(plan_of(++step, turn.positions, turn.tokens));
            logits[capture].push_back(ctx.device.download(view));
            INFO("step " << step);
            CHECK(runner.graphs().replayed() == (capture && turn.replayed));
          }
        });
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    INFO("step " << i + 1);
    REQUIRE(same_bits(logits[0][i], logits[1][i]));
  }
}

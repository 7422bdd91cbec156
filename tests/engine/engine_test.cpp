// The engine on the bundled model: whatever the schedule, each request gets the text that it gets
// alone on one device.
#include "common/engine/engine.h"

#include <limits>
#include <map>

#include "common/comm/forwarding.h"
#include "common/core/error.h"
#include "common/core/random.h"
#include "common/engine/generate.h"
#include "common/model/one_device_decoder.h"
#include "tests/catch.h"
#include "tests/engine/run_engine.h"
#include "tests/engine/tiny_model.h"

using namespace tp;

namespace {

Request request_of(std::vector<std::int32_t> prompt, std::int64_t max_new_tokens) {
  return {std::move(prompt), max_new_tokens, {}, true, {}};
}

// Requests with prompts of different lengths, some greedy and some sampled.
std::vector<Request> some_requests(std::size_t count, std::uint64_t vocab_size = 4353) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::uint64_t t = 0; t < 3 + (i * 7) % 23; ++t)
      prompt.push_back(static_cast<std::int32_t>(random_bits(i, t) % vocab_size));
    Request request = request_of(std::move(prompt), 4 + static_cast<std::int64_t>(i * 5) % 13);
    if (i % 3 == 1) request.sampling = {0.9, 40, 0.95, i};
    if (i % 3 == 2) request.sampling = {1.3, 0, 1, i};
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<std::int32_t>> alone_on_one_device(const Loaded& model,
                                                           const std::vector<Request>& requests,
                                                           std::int64_t max_context) {
  std::vector<std::vector<std::int32_t>> ids;
  for (const Request& request : requests) {
    OneDeviceDecoder decoder(model.config, model.weights, max_context);
    Tensor logits;
    const Model run = [&](std::span<const std::int32_t> tokens, std::int64_t first) {
      logits = decoder.forward(tokens, first, 1);
      return logits.view();
    };
    ids.push_back(generate(run, request, max_context, 0).ids);
  }
  return ids;
}

std::vector<std::vector<std::int32_t>> ids_of(const EngineRun& run) {
  std::vector<std::vector<std::int32_t>> ids;
  for (const Completion& done : run.done) ids.push_back(done.ids);
  return ids;
}

}  // namespace

TEST_CASE("every schedule gives each request the ids it gets alone on one device") {
  const Loaded model;
  const std::vector<Request> requests = some_requests(10);
  const auto wanted = alone_on_one_device(model, requests, 128);
  for (const std::int64_t batch : {1, 7, 64}) {
    for (const std::int64_t chunk : {16, 64, 0}) {
      INFO("batch " << batch << ", chunk " << chunk);
      EngineSetup setup;
      setup.max_num_seqs = batch;
      setup.chunked_prefill_size = chunk;
      setup.max_num_batched_tokens = 128;
      const EngineRun run = run_engine(model, 2, setup, requests);
      CHECK(ids_of(run) == wanted);
      CHECK(run.counters.most_running == std::min<std::int64_t>(batch, 10));
      CHECK(run.counters.preemptions == 0);
    }
  }
  for (const int tp_size : {1, 4, 8})
    CHECK(ids_of(run_engine(model, tp_size, {}, requests)) == wanted);
}

TEST_CASE("a model with biases everywhere gives the same ids on every number of ranks") {
  const TinyModel files;
  const Loaded model(files.folder());
  const std::vector<Request> requests = some_requests(9, TinyModel::kVocab);
  const auto wanted = alone_on_one_device(model, requests, 128);
  for (const int tp_size : {1, 2, 4, 8})
    CHECK(ids_of(run_engine(model, tp_size, {}, requests)) == wanted);
}

TEST_CASE("each of eight requests is preempted and none of the texts changes") {
  const Loaded model;
  // Each ends with all 12 blocks, so it takes them from all that are younger. Only the oldest of all
  // is never preempted; the eight after it each are.
  std::vector<Request> requests = some_requests(9);
  for (std::size_t i = 0; i < 9; ++i) {
    requests[i].prompt_ids.resize(4, static_cast<std::int32_t>(100 + i));
    requests[i].max_new_tokens = 45;
  }
  const auto wanted = alone_on_one_device(model, requests, 128);
  for (const int tp_size : {1, 2}) {
    EngineSetup setup;
    setup.num_blocks = 12;
    const EngineRun run = run_engine(model, tp_size, setup, requests);
    CHECK(ids_of(run) == wanted);
    CHECK(run.free_blocks == 12);
    CHECK(run.done[0].preemptions == 0);
    for (std::size_t i = 1; i < 9; ++i) CHECK(run.done[i].preemptions >= 1);
    CHECK(run.counters.recomputed_tokens > 0);
  }
}

TEST_CASE("two requests of which one must be preempted finish as with a large pool") {
  const Loaded model;
  std::vector<Request> requests{request_of({1, 2, 3, 4, 5, 6, 7, 8}, 12),
                                request_of({8, 7, 6, 5, 4, 3, 2, 1}, 12)};
  EngineSetup tight, large;
  tight.num_blocks = 6;
  large.num_blocks = 16;
  std::map<std::int32_t, std::vector<std::int32_t>> streamed;
  const EngineRun run = drive_engine(model, launch_of(2), tight, [&](Engine& engine) {
    for (const Request& request : requests) engine.add_request(request);
    while (!engine.idle())
      for (const Engine::NewToken& token : engine.step()) streamed[token.id].push_back(token.token);
  });
  CHECK(ids_of(run) == ids_of(run_engine(model, 2, large, requests)));
  CHECK(run.counters.preemptions == 1);
  CHECK(run.done[0].preemptions == 0);
  CHECK(run.done[1].preemptions == 1);
  CHECK(run.counters.steps < 200);
  CHECK(run.free_blocks == 6);
  CHECK(streamed[0] == run.done[0].ids);  // every token once
  CHECK(streamed[1] == run.done[1].ids);
}

TEST_CASE("a sequence preempted at the first token of its second block goes on as without it") {
  const Loaded model;
  Request longer = request_of(std::vector<std::int32_t>(255, 9), 6), other = longer;
  for (std::size_t i = 0; i < 255; ++i) longer.prompt_ids[i] = static_cast<std::int32_t>(i);
  EngineSetup setup;
  setup.block_size = 256;
  setup.max_model_len = setup.max_num_batched_tokens = 300;
  setup.num_blocks = 3;
  const EngineRun alone = run_engine(model, 2, setup, {longer});
  CHECK(alone.counters.preemptions == 0);
  // Both reach 257 tokens in the same step; the third block goes to the older one.
  const EngineRun run = run_engine(model, 2, setup, {other, longer});
  CHECK(run.done[1].preemptions == 1);
  CHECK(run.done[1].ids == alone.done[0].ids);
}

TEST_CASE("a request that can never fit ends alone with an error") {
  const TinyModel files;
  const Loaded model(files.folder());
  EngineSetup setup;  // 4 blocks of 4 tokens
  setup.num_blocks = 4;
  const auto prompt = [](std::size_t tokens) { return std::vector<std::int32_t>(tokens, 5); };
  std::vector<Request> requests{request_of(prompt(17), 1), request_of(prompt(4), 4),
                                request_of(prompt(12), 5), request_of(prompt(14), 5)};
  const EngineRun run = run_engine(model, 2, setup, requests);
  CHECK(run.done[0].reason == FinishReason::error);
  CHECK_THAT(run.done[0].error, ContainsSubstring("17 tokens") && ContainsSubstring("holds 16"));
  CHECK(run.done[1].ids.size() == 4);
  CHECK(run.done[2].ids.size() == 5);  // needs all 16 slots
  CHECK(run.done[2].reason == FinishReason::length);
  CHECK(run.done[3].ids.size() == 3);  // would need 18
  CHECK(run.done[3].reason == FinishReason::context);
  CHECK(run.free_blocks == 4);

  const EngineRun only_bad = run_engine(model, 2, setup, {requests[0]});
  CHECK(only_bad.counters.steps == 0);
}

TEST_CASE("bad requests name what is wrong and do not disturb the others") {
  const TinyModel files;
  const Loaded model(files.folder());
  const Request good = request_of({5, 6}, 3);
  Request empty = good, foreign = good, none = good, hot = good, top_p = good;
  empty.prompt_ids = {};
  foreign.prompt_ids = {5, 29};
  none.max_new_tokens = 0;
  hot.sampling.temperature = -1;
  top_p.sampling.top_p = 1.5;
  const EngineRun run = run_engine(model, 2, {}, {empty, good, foreign, none, good, hot, top_p});
  CHECK_THAT(run.done[0].error, ContainsSubstring("no tokens"));
  CHECK_THAT(run.done[2].error, ContainsSubstring("29 is not in the vocabulary, 0 to 28"));
  CHECK_THAT(run.done[3].error, ContainsSubstring("max_tokens 0"));
  CHECK_THAT(run.done[5].error, ContainsSubstring("temperature"));
  CHECK_THAT(run.done[6].error, ContainsSubstring("top-p 1.5"));
  CHECK(run.done[1].ids.size() == 3);
  CHECK(run.done[1].ids == run.done[4].ids);
}

TEST_CASE("aborted requests give their blocks back and the others go on") {
  const TinyModel files;
  const Loaded model(files.folder());
  const Request request = request_of({5, 6, 7, 8, 9}, 5);
  EngineSetup setup;
  setup.num_blocks = 6;
  const EngineRun run = drive_engine(model, launch_of(2), setup, [&](Engine& engine) {
    for (int i = 0; i < 4; ++i) engine.add_request(request);
    engine.abort(1);  // before it ran
    engine.step();
    engine.abort(0);  // after one token
    engine.abort(0);  // twice does nothing
    engine.abort(77);
    while (!engine.idle()) engine.step();
    engine.abort(2);  // it is finished already
  });
  CHECK(run.done[0].reason == FinishReason::aborted);
  CHECK(run.done[0].ids.size() == 1);
  CHECK(run.done[1].reason == FinishReason::aborted);
  CHECK(run.done[1].ids.empty());
  CHECK(run.done[2].reason == FinishReason::length);
  CHECK(run.done[3].ids == run.done[2].ids);
  CHECK(run.free_blocks == 6);
}

TEST_CASE("a request whose logits are not finite ends alone and the error names the step") {
  // Spoils the gathered logits of the first sequence in step 2.
  class Spoil final : public ForwardingCommunicator {
    using ForwardingCommunicator::ForwardingCommunicator;
    void do_gather(const Call& call, ConstTensorView part, TensorView whole) override {
      inner().gather(part, whole, call.peer, call.label.data());
      if (rank() == 0 && gathers_++ == 2)
        whole.row<float>(0)[5] = std::numeric_limits<float>::quiet_NaN();
    }
    int gathers_ = 0;
  };
  const TinyModel files;
  const Loaded model(files.folder());
  Launch launch = launch_of(2);
  launch.wrap_communicator = [](std::unique_ptr<Communicator> inner, Device&) {
    return std::make_unique<Spoil>(std::move(inner));
  };
  const Request request = request_of({5, 6, 7}, 5);
  const EngineRun run = drive_engine(model, launch, {}, [&](Engine& engine) {
    for (int i = 0; i < 3; ++i) engine.add_request(request);
    while (!engine.idle()) engine.step();
  });
  CHECK(run.done[0].reason == FinishReason::error);
  CHECK_THAT(run.done[0].error, ContainsSubstring("step 3: non-finite logits"));
  CHECK(run.done[0].ids.size() == 2);
  for (const std::size_t other : {1u, 2u}) {
    CHECK(run.done[other].reason == FinishReason::length);
    CHECK(run.done[other].ids.size() == 5);
  }
}

TEST_CASE("one token has no time per further token") {
  const TinyModel files;
  const Loaded model(files.folder());
  const EngineRun run = run_engine(model, 2, {}, {request_of({5, 6}, 1), request_of({5, 6}, 2)});
  CHECK(run.done[0].ttft_us > 0);
  CHECK_FALSE(run.done[0].tpot_us.has_value());
  REQUIRE(run.done[1].tpot_us.has_value());
  CHECK(*run.done[1].tpot_us > 0);
}

// Rank 1 thinks of another seed: it never draws, so nothing changes. All ranks run the same tokens.
TEST_CASE("only rank 0 draws and every rank runs the same tokens") {
  const TinyModel files;
  const Loaded model(files.folder());
  const auto texts_with = [&](int tp_size, std::uint64_t seed_of_rank_1) {
    std::vector<std::vector<std::int32_t>> histories(static_cast<std::size_t>(tp_size));
    std::vector<std::int32_t> text;
    const EngineSetup setup;
    run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput&) {
      Request request = request_of({3, 1, 4, 1, 5}, 64);
      request.sampling = {1, 0, 1, ctx.rank == 1 ? seed_of_rank_1 : 7};
      Decoder decoder(ctx, model.config, model.weights,
                      DecoderShard::of(model.config, ctx.rank, tp_size), setup.decoder());
      ModelRunner runner(ctx, decoder);
      // What the rank was told to run, step by step.
      const auto note = [&](const std::string& module, ConstTensorView) {
        if (module != "embedding") return;
        BatchPlan plan;
        plan.decode(runner.message());
        auto& mine = histories[static_cast<std::size_t>(ctx.rank)];
        mine.insert(mine.end(), plan.token_ids.begin(), plan.token_ids.end());
      };
      if (ctx.rank != 0) return runner.follow(note);
      Engine engine(runner, setup.scheduler());
      engine.add_request(request);
      while (!engine.idle()) {
        engine.step();
        histories[0].insert(histories[0].end(), engine.plan().token_ids.begin(),
                            engine.plan().token_ids.end());
      }
      runner.stop();
      text = engine.completion(0).ids;
    });
    for (const auto& history : histories) CHECK(history == histories[0]);
    return text;
  };
  const std::vector<std::int32_t> wanted = texts_with(1, 7);
  CHECK(wanted.size() == 64);
  for (const int tp_size : {2, 4}) {
    CHECK(texts_with(tp_size, 7) == wanted);
    CHECK(texts_with(tp_size, 8) == wanted);
  }
}

TEST_CASE("a rank that throws at any step stops all ranks") {
  // Rank 1 fails when the given number of plans has arrived.
  class FailsLater final : public ForwardingGroup {
   public:
    FailsLater(std::unique_ptr<Group> inner, int broadcasts)
        : ForwardingGroup(std::move(inner)), left_(broadcasts) {}
    void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override {
      ForwardingGroup::broadcast(bytes, root, patience);
      if (rank() == 1 && --left_ == 0) throw Error(ErrorKind::rank, "out of order");
    }

   private:
    int left_;
  };
  const TinyModel files;
  const Loaded model(files.folder());
  for (const int step : {1, 2, 5, 11}) {
    Launch launch = launch_of(4);
    launch.wrap_group = [step](std::unique_ptr<Group> group) {
      return std::make_unique<FailsLater>(std::move(group), step);
    };
    CHECK_THROWS_WITH(drive_engine(model, launch, {},
                                   [&](Engine& engine) {
                                     for (const Request& r : some_requests(6, 29))
                                       engine.add_request(r);
                                     while (!engine.idle()) engine.step();
                                   }),
                      ContainsSubstring("rank 1 failed: out of order"));
  }
}

TEST_CASE("a step with 256 sequences and one whose plan is larger than a mebibyte") {
  const Loaded model;
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 256; ++i) requests.push_back(request_of({i, i + 1, 5}, 2));
  EngineSetup setup;
  setup.max_num_seqs = 256;
  setup.max_num_batched_tokens = 1024;
  setup.max_model_len = 8;
  const EngineRun wide = run_engine(model, 2, setup, requests);
  CHECK(wide.counters.most_running == 256);
  CHECK(wide.counters.steps == 2);
  CHECK(wide.done[200].ids == run_engine(model, 1, {}, {requests[200]}).done[0].ids);

  // Block tables of one token per block make a large plan: 300,000 words.
  const Loaded& same = model;
  run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput&) {
    Decoder decoder(ctx, same.config, same.weights, DecoderShard::of(same.config, ctx.rank, 2),
                    DecoderLimits{8, 8, 1, 1, 64});
    ModelRunner runner(ctx, decoder);
    if (ctx.rank != 0) return runner.follow();
    BatchPlan plan;
    const std::vector<std::int32_t> table(300'000, 3);
    plan.add(0, std::vector<std::int32_t>{5}, 0, table, 1, 1);
    const ConstTensorView logits = runner.lead(plan);
    if (runner.message().size() < (std::size_t{1} << 20)) throw input_error("the plan is small");
    if (logits.rows() != 1) throw input_error("no logits");
    runner.stop();
  });
}

TEST_CASE("10000 short requests lose no block") {
  // The model runs only the first of them; the scheduler, blocks and completions all.
  const TinyModel files;
  const Loaded model(files.folder());
  EngineSetup setup;
  setup.max_num_seqs = 64;
  setup.max_num_batched_tokens = 256;
  setup.max_model_len = 16;
  setup.num_blocks = 100;
  const EngineRun run = drive_engine(model, launch_of(2), setup, [&](Engine& engine) {
    for (std::int32_t i = 0; i < 10'000; ++i)
      engine.add_request(request_of({i % 29, 7}, 1 + i % 2));
    while (!engine.idle()) engine.step();
  });
  CHECK(run.done.size() == 10'000);
  CHECK(run.free_blocks == 100);
  for (std::size_t i = 0; i < run.done.size(); ++i) REQUIRE(run.done[i].ids.size() == 1 + i % 2);
}

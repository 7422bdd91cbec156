// The decoder on the bundled model, against golden files made by Hugging Face transformers.
#include "common/model/decoder.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/model/golden.h"
#include "tests/temp_folder.h"

using namespace tp;

namespace {

const std::filesystem::path kModel = std::filesystem::path(TP_SOURCE_DIR) / "models" / "austen-5m";

// One request on tp_size ranks.
Completion greedy(const Loaded& model, int tp_size, const Request& request, std::int64_t context) {
  return std::move(run_engine(model, tp_size, {.max_model_len = context}, {request}).done[0]);
}

}  // namespace

TEST_CASE("hidden states and logits equal the golden files on every number of ranks") {
  const Golden golden(kModel / "golden");
  const Loaded model;
  const int tp_size = GENERATE(1, 2, 3, 4, 5, 8);
  const auto ranks = run_with_tap(model, tp_size, golden.ids(0, "ids"), 10);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    golden.check("embedding", ranks[r].tensor("embedding"), "prompt0.hidden0");
    for (int layer = 1; layer <= 5; ++layer)
      golden.check("hidden " + std::to_string(layer),
                   ranks[r].tensor("layer " + std::to_string(layer - 1) + " output"),
                   "prompt0.hidden" + std::to_string(layer));
    golden.check("final norm", ranks[r].tensor("final norm"), "prompt0.hidden6");
  }
  golden.check("logits", ranks[0].tensor("logits"), "prompt0.logits");
  const auto third = run_with_tap(model, tp_size, golden.ids(2, "ids"), 3);
  golden.check("logits of prompt 2", third[0].tensor("logits"), "prompt2.logits");
}

TEST_CASE("the last position of 500 tokens equals the golden file") {
  const Golden golden(kModel / "golden");
  const Loaded model;
  const auto ids = golden.json.at("long_ids").get<std::vector<std::int32_t>>();
  REQUIRE(ids.size() == 500);
  const int tp_size = GENERATE(1, 3, 4);
  const auto ranks = run_with_tap(model, tp_size, ids, 500);
  golden.check("long logits", ranks[0].tensor("logits").rows_in({499, 500}), "long.last_logits");
  golden.check("long hidden", ranks[0].tensor("final norm").rows_in({499, 500}),
               "long.last_hidden");
}

TEST_CASE("greedy continuations equal the golden ones") {
  const Golden golden(kModel / "golden");
  const Loaded model;
  const int tp_size = GENERATE(1, 2, 3, 4, 8);
  const std::size_t prompts = golden.json.at("prompts").size();
  CHECK(prompts == 6);
  for (std::size_t p = 0; p < prompts; ++p) {
    Request request{golden.ids(p, "ids"), 48, model.config.eos_token_ids, true, {}};
    CHECK(greedy(model, tp_size, request, 128).ids == golden.ids(p, "greedy"));
  }
}

TEST_CASE("any chunks of a prompt give the same bits") {
  const Golden golden(kModel / "golden");
  const Loaded model;
  const auto whole = run_with_tap(model, 2, golden.ids(0, "ids"), 10);
  for (const std::int64_t chunk : {1, 3, 9}) {
    const auto parts = run_with_tap(model, 2, golden.ids(0, "ids"), chunk);
    const ConstTensorView last = parts[0].tensor("logits");
    const Comparison c = compare("last logits", last.rows_in({last.rows() - 1, last.rows()}),
                                 whole[0].tensor("logits").rows_in({9, 10}), Tolerance::exact());
    INFO("chunk " << chunk << ": " << c.place);
    CHECK(c.passed);
  }
}

TEST_CASE("each rank allocates what its shapes say and copies only its shard") {
  const Loaded model;
  const ModelConfig& c = model.config;
  struct Case {
    int tp_size;
    std::int64_t kv_heads;  // per rank: 2 heads replicate on 4 and 8 ranks
    std::int64_t vocab_rows;
  };
  for (const Case& expected :
       {Case{1, 2, 4353}, Case{2, 1, 2177}, Case{4, 1, 1089}, Case{8, 1, 545}}) {
    const auto ranks = run_ranks(launch_of(expected.tp_size), [&](RankContext& ctx, RankOutput&) {
      const Decoder decoder(ctx, c, model.weights, DecoderShard::of(c, ctx.rank, expected.tp_size),
                            DecoderLimits{128, 16, 1, 8, 16});
      // Read here: the decoder gives its memory back before the rank ends.
      const std::int64_t tp_size = expected.tp_size;
      const std::int64_t per_layer = 2 * 256 + 2 * 256 * (256 / tp_size) +
                                     2 * expected.kv_heads * 32 * 256 + 3 * 256 * (704 / tp_size);
      const std::int64_t elements = expected.vocab_rows * 256 + 6 * per_layer + 256;
      if (ctx.device.memory().use("weights").bytes != elements * 2)
        throw input_error("weights: " + std::to_string(ctx.device.memory().use("weights").bytes) +
                          " bytes instead of " + std::to_string(elements * 2));
      const std::int64_t pads =
          std::max<std::int64_t>(0, (ctx.rank + 1) * expected.vocab_rows - 4353);
      if (ctx.device.memory().uploaded_bytes() != (elements - pads * 256) * 2)
        throw input_error("copied: " + std::to_string(ctx.device.memory().uploaded_bytes()));
      if (ctx.device.memory().use("kv").bytes != 6 * 2 * expected.kv_heads * 128 * 32 * 4)
        throw input_error("kv: " + std::to_string(ctx.device.memory().use("kv").bytes));
    });
    for (const RankOutput& rank : ranks) {
      CHECK(rank.memory.use("weights").bytes == 0);
      CHECK(rank.memory.use("weights").peak_bytes > 0);
    }
  }
}

TEST_CASE("a decode step allocates nothing and communicates twice per layer") {
  const Loaded model;
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput&) {
    Decoder decoder(ctx, model.config, model.weights, DecoderShard::of(model.config, ctx.rank, 2),
                    DecoderLimits::contiguous(16, 8, 3));
    const std::vector<std::int32_t> ids{5, 6, 7, 5};
    run_rows(ctx, decoder, ids, 0, 3);
    const std::int64_t peak = ctx.device.memory().use("activations").peak_bytes;
    run_rows(ctx, decoder, ids, 3, 1);
    if (ctx.device.memory().use("activations").peak_bytes != peak)
      throw input_error("the step allocated");
  });
  for (const RankOutput& rank : ranks) {
    CHECK(rank.ledger.total(Op::all_reduce).calls == 2 * (1 + 2 * 6));
    CHECK(rank.ledger.total(Op::all_reduce, "layer 5 down_proj").calls == 2);
    CHECK(rank.ledger.total(Op::all_reduce, "layer 5 down_proj").payload_bytes ==
          (3 + 1) * 256 * 4);
    CHECK(rank.ledger.total(Op::gather).calls == 2);
    CHECK(rank.ledger.total(Op::all_gather).calls == 0);
  }
}

TEST_CASE("an end-of-text token ends the text unless it is ignored") {
  const TempFolder copy;
  for (const char* name : {"config.json", "generation_config.json"}) {
    nlohmann::json json = read_json(kModel / name);
    json["eos_token_id"] = 14;
    std::ofstream(copy.path() / name) << json;
  }
  const ModelConfig config = ModelConfig::load(copy.path());
  CHECK(config.eos_token_ids == std::vector<std::int32_t>{14});
  const Golden golden(kModel / "golden");
  const Loaded model;
  Request request{golden.ids(0, "ids"), 48, config.eos_token_ids, false, {}};
  const Completion stopped = greedy(model, 2, request, 128);
  CHECK(stopped.ids.size() == 14);
  CHECK(stopped.ids.back() == 14);
  CHECK(stopped.reason == FinishReason::eos);
  request.ignore_eos = true;
  CHECK(greedy(model, 2, request, 128).ids == golden.ids(0, "greedy"));
}

TEST_CASE("a text ends when the KV cache is full") {
  const Golden golden(kModel / "golden");
  const Loaded model;
  const Request request{golden.ids(0, "ids"), 48, {}, true, {}};
  const Completion done = greedy(model, 2, request, 12);
  CHECK(done.reason == FinishReason::context);
  CHECK(done.ids.size() ==
        3);  // 10 prompt tokens, 2 more in the cache, the last one needs no place
}

TEST_CASE("a token id outside the vocabulary is an error that names it") {
  const Loaded model;
  const std::vector<std::int32_t> ids{1, 4353};
  CHECK_THROWS_WITH(run_with_tap(model, 2, ids, 2),
                    ContainsSubstring("token id 4353 is not in the vocabulary of 4353"));
}

// A tiny tied model: hidden 2, vocabulary 6, no layers that matter.
TEST_CASE("a tied head uses the embedding and an untied one must be there") {
  const std::vector<float> table{1, 0, 0, 1, 1, 1, -1, 0, 0, -1, 2, 1};
  const std::vector<float> hidden{0.5, 1};
  const std::vector<float> expected{0.5, 1, 1.5, -0.5, -1, 2};
  for (const int tp_size : {1, 2, 3}) {
    const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
      const auto head = VocabParallelTable::load(ctx, view_of(table.data(), {6, 2}),
                                                 vocab_shard(6, ctx.rank, tp_size));
      Tensor local = ctx.device.allocate({1, head.shard.rows.size()}, DType::f32, "activations");
      head.logits(ctx, view_of(hidden.data(), {1, 2}), local);
      out.keep("local", local);
    });
    std::vector<float> logits;
    for (const RankOutput& rank : ranks) {
      const ConstTensorView local = rank.tensor("local");
      logits.insert(logits.end(), local.row<float>(0), local.row<float>(0) + local.row_elements());
    }
    CHECK(logits == expected);
    CHECK(sample(view_of(logits.data(), {1, 6}), {}, 0) == 5);
  }
}

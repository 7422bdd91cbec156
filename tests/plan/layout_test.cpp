#include "common/plan/layout.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/catch.h"
#include "tests/plan/plans.h"

using namespace tp;

namespace {

std::string reasons(const PlanInput& input, int tp_size, int pp_size = 1) {
  return fmt::format("{}", fmt::join(layout_problems(input, tp_size, pp_size), "\n"));
}

}  // namespace

TEST_CASE("a 70B model on 80 GiB cards to the byte") {
  struct Row {
    int tp;
    std::int64_t weights, kv_per_token, budget, blocks, tokens;
  };
  const PlanInput input = plan_of(shape("llama-3-70b"));
  CHECK(input.usable_bytes() == 77'309'411'328);
  for (const Row& row : {Row{2, 70'555'025'408, 163'840, 4'841'783'296, 1'846, 29'536},
                         Row{4, 35'278'831'616, 81'920, 40'117'977'088, 30'607, 489'712},
                         Row{8, 17'640'734'720, 40'960, 57'756'073'984, 88'128, 1'410'048},
                         Row{16, 8'989'458'432, 40'960, 66'407'350'272, 101'329, 1'621'264}}) {
    const LayoutPlan layout = plan_layout(input, row.tp, 1);
    CAPTURE(row.tp);
    REQUIRE(layout.cards.size() == static_cast<std::size_t>(row.tp));
    for (const CardPlan& card : layout.cards) {
      CHECK(card.weights.total() == row.weights);
      CHECK(card.kv_bytes_per_token == row.kv_per_token);
      CHECK(card.kv_budget_bytes == row.budget);
      CHECK(card.blocks == row.blocks);
    }
    CHECK(layout.blocks == row.blocks);
    CHECK(layout.tokens(input) == row.tokens);
  }
}

TEST_CASE("a layout says whether it holds the load and not only the weights") {
  PlanInput input = plan_of(shape("llama-3-70b"));
  CHECK_FALSE(plan_layout(input, 1, 1).weights_fit());
  const LayoutPlan two = plan_layout(input, 2, 1);
  CHECK(two.weights_fit());
  CHECK(two.requests(input) == 3);
  CHECK_FALSE(two.holds(input));
  input.concurrency = 3;
  CHECK(plan_layout(input, 2, 1).holds(input));
  input.concurrency = 4;
  CHECK_FALSE(plan_layout(input, 2, 1).holds(input));
}

TEST_CASE("stages divide the KV cache of a card like ranks do") {
  const PlanInput input = plan_of(shape("llama-3-70b"));
  for (const auto& [tp_size, pp_size] : {std::pair{4, 1}, {1, 4}, {2, 2}}) {
    for (const CardPlan& card : plan_layout(input, tp_size, pp_size).cards)
      CHECK(card.kv_bytes_per_token == 81'920);
  }
}

TEST_CASE("the stage with the least room decides for all") {
  const PlanInput input = plan_of(shape("llama-3-70b"));
  const LayoutPlan layout = plan_layout(input, 1, 3);  // 26, 27 and 27 layers
  std::vector<std::int64_t> layers;
  for (const CardPlan& card : layout.cards) {
    layers.push_back(card.place.layers(80).size());
    CHECK(layout.blocks <= card.blocks);
  }
  CHECK(layers == std::vector<std::int64_t>{26, 27, 27});
  CHECK(layout.limiting == 2);  // 27 layers, the final norm and lm_head
  CHECK(layout.blocks == layout.cards[2].blocks);
}

TEST_CASE("a tp that KV heads forbid is refused for them") {
  const PlanInput input = plan_of(sized(40, 10, 17920, 100352));
  CHECK_THAT(reasons(input, 4), ContainsSubstring("num_key_value_heads=10 and tp=4"));
  CHECK_THAT(reasons(input, 4), !ContainsSubstring("num_attention_heads"));
  CHECK(usable_tp(input, 256) == std::vector<int>{1, 2, 5, 10, 20, 40});
}

TEST_CASE("heads and intermediate size each take tp sizes away") {
  const PlanInput input = plan_of(sized(28, 4, 18944, 152064));
  CHECK(usable_tp(input, 256) == std::vector<int>{1, 2, 4});
  CHECK_THAT(reasons(input, 7), ContainsSubstring("num_key_value_heads=4 and tp=7"));
  CHECK_THAT(reasons(input, 28), ContainsSubstring("intermediate_size=18944") &&
                                     ContainsSubstring("remainder 16") &&
                                     !ContainsSubstring("num_key_value_heads"));
}

TEST_CASE("pads of the vocabulary are a note and no reason") {
  const LayoutPlan layout = plan_layout(plan_of(sized(96, 8, 96, 151552)), 6, 1);
  REQUIRE(layout.problems.size() == 1);
  CHECK_THAT(layout.problems[0], ContainsSubstring("num_key_value_heads=8 and tp=6"));
  REQUIRE(layout.notes.size() == 1);
  CHECK_THAT(layout.notes[0], ContainsSubstring("vocab_size=151552 is padded to 151554") &&
                                  ContainsSubstring("25259 rows per rank, 2 pads"));
  CHECK(plan_layout(plan_of(sized(8, 8, 80, 101)), 2, 1).usable());
}

TEST_CASE("every reason is given at once") {
  PlanInput input = plan_of(sized(10, 5, 96, 101));  // hidden 40, 4 layers
  input.weights = {number_format("int8"), 16};
  const std::string text = reasons(input, 4, 5);
  CHECK_THAT(text, ContainsSubstring("num_attention_heads=10 is not a multiple of tp=4"));
  CHECK_THAT(text, ContainsSubstring("num_key_value_heads=5 and tp=4"));
  CHECK_THAT(text, ContainsSubstring("hidden_size=40 is not a multiple of --quant-group 16"));
  CHECK_THAT(text, ContainsSubstring("down_proj has 24 input features on rank 0 of tp=4"));
  CHECK_THAT(text, ContainsSubstring("num_hidden_layers=4: fewer layers than pp=5 stages"));
}

TEST_CASE("a quantization group is not cut") {
  PlanInput input = plan_of(shape("llama-3-70b"));
  input.weights = {number_format("int4"), 128};
  CHECK(layout_problems(input, 32, 1).empty());  // 28672 / 32 = 7 * 128, and two heads
  CHECK_THAT(reasons(input, 64), ContainsSubstring("down_proj has 448 input features"));
  CHECK_THAT(reasons(input, 64), !ContainsSubstring("o_proj"));
  input.weights.group = 512;
  CHECK_THAT(reasons(input, 32), ContainsSubstring("o_proj has 256 input features") &&
                                     ContainsSubstring("down_proj has 896 input features"));
  input.weights = {number_format("bf16"), 512};
  CHECK(layout_problems(input, 64, 1).empty());
}

TEST_CASE("with uneven every tp up to the query heads can be") {
  PlanInput input = plan_of(sized(10, 5, 96, 101));
  input.uneven = true;
  for (int tp_size = 1; tp_size <= 10; ++tp_size) CHECK(plan_layout(input, tp_size, 1).usable());
  CHECK_FALSE(plan_layout(input, 11, 1).usable());
  const LayoutPlan three = plan_layout(input, 3, 1);  // heads 3, 3, 4 on KV heads 0-1, 1-2, 3-4
  CHECK(three.cards[0].kv_heads == 2);
  CHECK(three.tightest().weights.total() >= three.cards[0].weights.total());
}

TEST_CASE("the KV cache takes the bytes of its own format") {
  PlanInput input = plan_of(qwen3_4b());
  CHECK(plan_layout(input, 1, 1).cards[0].kv_bytes_per_token == 147'456);
  input.kv = number_format("fp8");
  CHECK(plan_layout(input, 1, 1).cards[0].kv_bytes_per_token == 73'728);
  input.kv = number_format("f32");
  CHECK(plan_layout(input, 4, 1).cards[0].kv_bytes_per_token == 73'728);
}

TEST_CASE("the usable share is rounded down without floating point") {
  PlanInput input;
  input.card_bytes = std::int64_t{40} << 30;
  CHECK(input.usable_bytes() == 38'654'705'664);
  input.card_bytes = 7;
  input.utilization_ppm = 999'999;
  CHECK(input.usable_bytes() == 6);
  input.card_bytes = std::int64_t{1} << 50;
  input.utilization_ppm = 1'000'000;
  CHECK(input.usable_bytes() == std::int64_t{1} << 50);
}

TEST_CASE("the largest sizes overflow nothing") {
  PlanInput input =
      plan_of(ModelConfig::for_plan({}, {{"model_type", std::string("llama")},
                                         {"hidden_size", std::int64_t{1} << 20},
                                         {"intermediate_size", std::int64_t{1} << 20},
                                         {"num_hidden_layers", std::int64_t{1} << 12},
                                         {"num_attention_heads", std::int64_t{1} << 19},
                                         {"head_dim", std::int64_t{2}},
                                         {"vocab_size", std::int64_t{1} << 24}}));
  input.weights.format = number_format("f32");
  input.kv = number_format("f32");
  input.block_size = 1 << 20;
  input.max_model_len = 1 << 24;
  input.concurrency = 1 << 24;
  const LayoutPlan layout = plan_layout(input, 1, 1);
  CHECK(layout.cards[0].weights.total() == 4 * parameter_count(input.config));
  CHECK(layout.cards[0].kv_budget_bytes < 0);
  CHECK(layout.blocks == 0);
  CHECK(input.needed_blocks() == std::int64_t{1} << 28);
}

#include "common/plan/choose.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/plan/plans.h"

using namespace tp;

namespace {

std::vector<LayoutPlan> plan_all(const PlanInput& input,
                                 const std::vector<std::pair<int, int>>& sizes) {
  std::vector<LayoutPlan> layouts;
  for (const auto& [tp_size, pp_size] : sizes)
    layouts.push_back(plan_layout(input, tp_size, pp_size));
  return layouts;
}

const Remedy& named(const std::vector<Remedy>& list, const std::string& begin) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Remedy& remedy) {
    return remedy.change.starts_with(begin);
  });
  INFO(begin);
  REQUIRE(found != list.end());
  return *found;
}

}  // namespace

TEST_CASE("the fewest cards that hold the load are chosen and then the fewest stages") {
  PlanInput input = plan_of(shape("llama-3-70b"));
  const auto layouts = plan_all(input, {{1, 1}, {2, 1}, {3, 1}, {8, 1}, {2, 2}, {1, 4}, {4, 1}});
  CHECK(smallest_that_holds(input, layouts) == 6);
  CHECK(roomiest(layouts) == 3);
  input.concurrency = 3;
  CHECK(smallest_that_holds(input, layouts) == 1);
  input.concurrency = 1000;
  CHECK_FALSE(smallest_that_holds(input, layouts));
  CHECK_FALSE(roomiest(plan_all(input, {{3, 1}, {5, 1}})));
}

TEST_CASE("the hint names the first ranks that add no room for KV") {
  const PlanInput input = plan_of(shape("llama-3-70b"));
  const auto stop = kv_stops_shrinking(
      plan_all(input, {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}}));
  REQUIRE(stop);
  CHECK(stop->from == 8);
  CHECK(stop->to == 16);
  CHECK(stop->bytes_per_token == 40'960);
  CHECK_FALSE(kv_stops_shrinking(plan_all(input, {{1, 1}, {2, 1}, {4, 1}, {8, 1}})));
  // Uneven splits may pause on the way: 3 ranks have 4 of 8 KV heads somewhere, as 2 ranks have.
  PlanInput uneven = input;
  uneven.uneven = true;
  const auto pauses = plan_all(uneven, {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}});
  CHECK(pauses[2].cards[1].kv_heads == 4);
  CHECK_FALSE(kv_stops_shrinking(pauses));
  // More stages do shrink it.
  CHECK_FALSE(kv_stops_shrinking(plan_all(input, {{8, 1}, {8, 2}})));
}

TEST_CASE("each remedy says how many blocks it gains or loses") {
  const PlanInput input = plan_of(shape("llama-3-70b"));
  const LayoutPlan two = plan_layout(input, 2, 1);  // 1846 blocks, 8192 needed
  const std::vector<Remedy> list = remedies(input, two);

  const Remedy& less = named(list, "--gpu-memory-utilization 0.9 to 0.85");
  CHECK(less.blocks == 208);  // 0.05 * 80 GiB are 1638.4 blocks of 2,621,440 bytes
  CHECK_FALSE(less.holds());
  const Remedy& shorter = named(list, "--max-model-len 8192 to 4096");
  CHECK(shorter.blocks == 1846);
  CHECK(shorter.needed_blocks == 4096);
  CHECK(named(list, "--tp 2 to 4").blocks == 30'607);
  CHECK(named(list, "--tp 2 to 4").holds());
  PlanInput int4 = input;
  int4.weights.format = number_format("int4");
  CHECK(named(list, "--dtype bf16 to int4").blocks == plan_layout(int4, 2, 1).blocks);
  CHECK(named(list, "--dtype bf16 to int4").holds());
  CHECK(named(list, "--dtype bf16 to fp8").blocks < named(list, "--dtype bf16 to int4").blocks);
  CHECK(named(list, "--kv-dtype bf16 to fp8").blocks == 3693);  // 4,841,783,296 / 1,310,720
  const Remedy& fewer = named(list, "--concurrency 16 to 3");
  CHECK(fewer.blocks == 1846);
  CHECK(fewer.holds());
}

TEST_CASE("a remedy that cannot be says why") {
  PlanInput input = plan_of(shape("llama-3-70b"));
  const std::vector<Remedy> list = remedies(input, plan_layout(input, 64, 1));
  CHECK_FALSE(named(list, "--tp above 64").blocks);
  CHECK_THAT(named(list, "--tp above 64").remark,
             ContainsSubstring("tp 128: num_attention_heads=64: fewer query heads"));
  const Remedy& int4 = named(list, "--dtype bf16 to int4");
  CHECK_FALSE(int4.blocks);
  CHECK_FALSE(int4.holds());
  CHECK_THAT(int4.remark, ContainsSubstring("down_proj has 448 input features"));
}

TEST_CASE("more ranks than there are cards are no remedy") {
  const PlanInput input = plan_of(shape("llama-3-70b"));
  const LayoutPlan two = plan_layout(input, 2, 1);
  const std::vector<Remedy> three_cards = remedies(input, two, 3);
  const Remedy& refused = named(three_cards, "--tp 2 to 4");
  CHECK_FALSE(refused.blocks);
  CHECK_FALSE(refused.holds());
  CHECK(refused.remark == "needs 4 cards, there are 3");
  const std::vector<Remedy> four_cards = remedies(input, two, 4);
  CHECK(named(four_cards, "--tp 2 to 4").holds());
  // Stages count: 2 of them on 4 ranks each are 8 cards.
  const std::vector<Remedy> stages = remedies(input, plan_layout(input, 2, 2), 7);
  CHECK(named(stages, "--tp 2 to 4").remark == "needs 8 cards, there are 7");
}

TEST_CASE("an uneven tp with less room is shown as a loss and the first with more behind it") {
  PlanInput input = plan_of(sized(16, 2, 4096, 512));
  input.uneven = true;
  input.concurrency = 1 << 24;
  // 3 ranks: the one in the middle reads both KV heads, as 1 rank does; 2 ranks have one each.
  const LayoutPlan two = plan_layout(input, 2, 1);
  const std::vector<Remedy> list = remedies(input, two);
  const Remedy& three = named(list, "--tp 2 to 3");
  REQUIRE(three.blocks);
  CHECK(*three.blocks < two.blocks);
  CHECK_FALSE(three.holds());
  CHECK_THAT(three.remark, ContainsSubstring("3 cards instead of 2, and no more room"));
  const Remedy& four = named(list, "--tp 2 to 4");
  CHECK(*four.blocks > two.blocks);
  CHECK(four.remark == "4 cards instead of 2");
  CHECK(named(remedies(input, two, 3), "--tp 2 to 3").remark == three.remark);
}

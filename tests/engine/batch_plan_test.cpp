#include "common/engine/batch_plan.h"

#include <cstring>
#include <set>

#include "common/core/error.h"
#include "common/engine/block_manager.h"
#include "common/engine/plan_check.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

// A sequence in the middle of its prompt, and one that generates. Blocks of 4 tokens.
BatchPlan example() {
  BatchPlan plan;
  plan.step = (std::uint64_t{5} << 32) + 3;
  plan.add(7, std::vector<std::int32_t>{11, 12, 13}, 3, std::vector<std::int32_t>{2, 0}, 4, 0);
  plan.add(9, std::vector<std::int32_t>{14}, 4, std::vector<std::int32_t>{5, 3}, 4, 1);
  return plan;
}

std::vector<std::byte> bytes_of(const BatchPlan& plan) {
  std::vector<std::byte> bytes;
  plan.encode(bytes);
  return bytes;
}

void set_word(std::vector<std::byte>& bytes, std::size_t index, std::int32_t value) {
  std::memcpy(bytes.data() + 4 * index, &value, sizeof value);
}

}  // namespace

TEST_CASE("a plan knows the position and the slot of each token") {
  const BatchPlan plan = example();
  CHECK(plan.token_ids == std::vector<std::int32_t>{11, 12, 13, 14});
  CHECK(plan.positions == std::vector<std::int32_t>{3, 4, 5, 4});
  CHECK(plan.slot_mapping == std::vector<std::int32_t>{2 * 4 + 3, 0, 1, 3 * 4});
  CHECK(plan.block_ids == std::vector<std::int32_t>{2, 0, 5, 3});
  CHECK(plan.sequences == std::vector<PlannedSequence>{{7, 3, 0, 2}, {9, 1, 1, 2}});
  CHECK_FALSE(plan.stop());
}

TEST_CASE("a device gets the rows of each sequence with its block table") {
  const BatchPlan plan = example();
  std::vector<SequenceRows> rows(5);
  plan.sequence_rows(rows);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].rows == Range{0, 3});
  CHECK(rows[0].first_position == 3);
  CHECK(BlockTable(rows[0].block_table.begin(), rows[0].block_table.end()) == BlockTable{2, 0});
  CHECK(rows[1].rows == Range{3, 4});
  CHECK(rows[1].first_position == 4);
  CHECK(BlockTable(rows[1].block_table.begin(), rows[1].block_table.end()) == BlockTable{5, 3});
}

TEST_CASE("a plan survives being bytes and they are as many as documented") {
  const BatchPlan plan = example();
  const std::vector<std::byte> bytes = bytes_of(plan);
  CHECK(bytes.size() == 32 + 16 * 2 + 12 * 4 + 4 * 4);
  BatchPlan back;
  back.add(1, std::vector<std::int32_t>{1, 2}, 0, std::vector<std::int32_t>{1}, 4, 1);  // replaced
  back.decode(bytes);
  CHECK(back == plan);
  back.decode(bytes_of({}));
  CHECK(back.stop());
}

TEST_CASE("bytes that are no plan are refused") {
  BatchPlan plan;
  std::vector<std::byte> bytes = bytes_of(example());
  CHECK_THROWS_WITH(plan.decode({}), ContainsSubstring("0 bytes"));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(plan.decode(std::span(bytes).first(size)), Error);
  const auto broken_at = [&](std::size_t word, std::int32_t value) {
    std::vector<std::byte> changed = bytes;
    set_word(changed, word, value);
    return changed;
  };
  CHECK_THROWS_WITH(plan.decode(broken_at(0, 7)), ContainsSubstring("begins with 0x00000007"));
  CHECK_THROWS_WITH(plan.decode(broken_at(1, 2)), ContainsSubstring("version 2"));
  CHECK_THROWS_WITH(plan.decode(broken_at(5, 2000000000)), ContainsSubstring("bytes instead of"));
  const std::size_t first_sequence = 8, positions = 8 + 2 * 4 + 4;
  CHECK_THROWS_WITH(plan.decode(broken_at(first_sequence + 1, 2)), ContainsSubstring("3 tokens"));
  CHECK_THROWS_WITH(plan.decode(broken_at(first_sequence + 1, 0)), ContainsSubstring("seq 7"));
  CHECK_THROWS_WITH(plan.decode(broken_at(first_sequence + 2, 4)), ContainsSubstring("seq 7"));
  CHECK_THROWS_WITH(plan.decode(broken_at(first_sequence + 3, 9)), ContainsSubstring("11 blocks"));
  CHECK_THROWS_WITH(plan.decode(broken_at(positions + 1, 9)),
                    ContainsSubstring("seq 7 have a gap"));
}

TEST_CASE("every word of a plan changes its fingerprint and is named as the difference") {
  const BatchPlan plan = example();
  std::set<std::uint64_t> seen{plan.fingerprint()};
  const auto differs = [&](const BatchPlan& other, const std::string& difference) {
    INFO(difference);
    CHECK(seen.insert(other.fingerprint()).second);
    CHECK(first_difference(plan, 0, other, 1) == difference);
  };
  CHECK(first_difference(plan, 0, plan, 1).empty());
  const std::string step = "step 21474836483";
  BatchPlan other = plan;
  other.step = 4;
  differs(other, "steps: rank 0 step 21474836483, rank 1 step 4");
  (other = plan).block_ids[2] = 6;
  differs(other, step + ", seq 9: rank 0 block 5, rank 1 block 6");
  (other = plan).token_ids[3] = 1;
  differs(other, step + ", seq 9, token 3: rank 0 id 14, rank 1 id 1");
  (other = plan).positions[1] = 0;
  differs(other, step + ", seq 7, token 1: rank 0 position 4, rank 1 position 0");
  (other = plan).slot_mapping[0] = 1;
  differs(other, step + ", seq 7, token 0: rank 0 slot 11, rank 1 slot 1");
  (other = plan).sequences[0].id = 8;
  differs(other, step + ", place 0: rank 0 seq 7, rank 1 seq 8");
  (other = plan).sequences[1].logit_rows = 0;
  differs(other, step + ", seq 9: rank 0 logit rows 1, rank 1 logit rows 0");
  (other = plan).add(10, std::vector<std::int32_t>{1}, 0, std::vector<std::int32_t>{1}, 4, 1);
  differs(other, step + ": rank 0 sequences 2, rank 1 sequences 3");
  std::swap((other = plan).token_ids[0], other.token_ids[1]);
  CHECK(seen.insert(other.fingerprint()).second);
}

TEST_CASE("ranks with equal plans go on and others stop with the first difference") {
  Launch launch;
  launch.tp_size = 4;
  const auto names = [](std::int32_t id) {
    return std::string(1, static_cast<char>('A' + id - 7));
  };
  int odd_rank = -1;
  const auto body = [&](RankContext& ctx, RankOutput&) {
    BatchPlan plan = example();
    if (ctx.rank == odd_rank) plan.block_ids[0] = 5;
    check_plans_equal(ctx, plan, names);
  };
  CHECK_NOTHROW(run_ranks(launch, body));
  for (odd_rank = 1; odd_rank < 4; ++odd_rank)
    CHECK_THROWS_WITH(
        run_ranks(launch, body),
        ContainsSubstring("seq A: rank 0 block 2, rank " + std::to_string(odd_rank) + " block 5"));
}

TEST_CASE("plans of different length are compared too") {
  Launch launch;
  launch.tp_size = 2;
  CHECK_THROWS_WITH(run_ranks(launch,
                              [&](RankContext& ctx, RankOutput&) {
                                BatchPlan plan = example();
                                if (ctx.rank == 1)
                                  plan.add(3, std::vector<std::int32_t>(500), 0,
                                           std::vector<std::int32_t>(125), 4, 1);
                                check_plans_equal(ctx, plan);
                              }),
                    ContainsSubstring("rank 0 sequences 2, rank 1 sequences 3"));
}

#include "common/engine/scheduler.h"

#include <map>
#include <set>

#include "common/core/error.h"
#include "common/core/random.h"
#include "tests/catch.h"

using namespace tp;

namespace {

// Runs the scheduler alone: what would be the model gives token 1 to everybody. Checks every plan.
class Driver {
 public:
  Driver(const SchedulerLimits& limits, std::int64_t num_blocks, std::int64_t block_size)
      : limits_(limits), scheduler_(limits, num_blocks, block_size) {}

  Scheduler& scheduler() { return scheduler_; }

  void add(std::int32_t id, std::int64_t prompt, std::int64_t to_generate) {
    scheduler_.add(id, std::vector<std::int32_t>(static_cast<std::size_t>(prompt), 7));
    live_[id] = {prompt, to_generate, 0, 0};
  }
  void abort(std::int32_t id) {
    scheduler_.remove(id);
    live_.erase(id);
  }

  // One step. Returns the ids that got a token.
  std::vector<std::int32_t> step() {
    std::vector<std::int32_t> got;
    if (!scheduler_.next(plan_)) {
      REQUIRE(live_.empty());
      return got;
    }
    check_plan();
    for (const PlannedSequence& s : plan_.sequences) {
      if (s.logit_rows == 0) continue;
      got.push_back(s.id);
      Live& live = live_.at(s.id);
      ++live.generated;
      const bool has_room = scheduler_.append(s.id, 1);
      if (live.generated == live.to_generate || !has_room) abort(s.id);
    }
    check_blocks();
    return got;
  }

  // Steps until nothing is left; returns how many.
  std::int64_t finish() {
    std::int64_t steps = 0;
    for (; !live_.empty(); ++steps) {
      REQUIRE(steps < 100'000);
      step();
    }
    return steps;
  }

  std::vector<std::int32_t> live_ids() const {
    std::vector<std::int32_t> ids;
    for (const auto& [id, live] : live_) ids.push_back(id);
    return ids;
  }
  const BatchPlan& plan() const { return plan_; }
  std::int64_t generated(std::int32_t id) const { return live_.at(id).generated; }

 private:
  struct Live {
    std::int64_t prompt, to_generate, generated, computed;
  };

  // The plan keeps the limits, runs each sequence once and without a gap, and gives every token a
  // slot of its own.
  void check_plan() {
    REQUIRE(std::ssize(plan_.token_ids) <= limits_.max_num_batched_tokens);
    REQUIRE(std::ssize(plan_.sequences) <= limits_.max_num_seqs);
    std::set<std::int32_t> ids, slots(plan_.slot_mapping.begin(), plan_.slot_mapping.end());
    REQUIRE(slots.size() == plan_.slot_mapping.size());
    std::size_t row = 0;
    for (const PlannedSequence& s : plan_.sequences) {
      REQUIRE(ids.insert(s.id).second);
      Live& live = live_.at(s.id);
      const std::int32_t first = plan_.positions[row];
      const bool starts_anew = first == 0;  // after a preemption, or the first time
      REQUIRE((starts_anew || first == live.computed));
      live.computed = first + s.rows;
      const std::int64_t length = live.prompt + live.generated;
      REQUIRE(live.computed <= length);
      REQUIRE(s.logit_rows == (live.computed == length ? 1 : 0));
      if (length - first > 1 && limits_.chunked_prefill_size > 0)
        REQUIRE(s.rows <= limits_.chunked_prefill_size);
      if (limits_.chunked_prefill_size == 0) REQUIRE(live.computed == length);
      row += static_cast<std::size_t>(s.rows);
    }
  }

  // Free and used blocks are all there are, and no block is in two tables.
  void check_blocks() {
    const BlockManager& blocks = scheduler_.blocks();
    std::set<std::int32_t> seen;
    std::int64_t used = 0;
    for (const BlockTable& table : scheduler_.block_tables()) {
      seen.insert(table.begin(), table.end());
      used += std::ssize(table);
    }
    REQUIRE(std::ssize(seen) == used);
    REQUIRE(used + blocks.free_blocks() == blocks.num_blocks());
  }

  SchedulerLimits limits_;
  Scheduler scheduler_;
  BatchPlan plan_;
  std::map<std::int32_t, Live> live_;
};

}  // namespace

TEST_CASE("a prompt is run in chunks and then a token at a time") {
  Driver driver({4, 8, 5, 64}, 16, 4);
  driver.add(0, 12, 3);
  CHECK(driver.step().empty());
  CHECK(driver.plan().positions == std::vector<std::int32_t>{0, 1, 2, 3, 4});
  CHECK(driver.step().empty());
  CHECK(driver.step() == std::vector<std::int32_t>{0});
  CHECK(driver.plan().positions == std::vector<std::int32_t>{10, 11});
  CHECK(driver.step() == std::vector<std::int32_t>{0});
  CHECK(driver.plan().positions == std::vector<std::int32_t>{12});
  CHECK(driver.finish() == 1);
  CHECK(driver.scheduler().counters().prompt_tokens == 12);
  CHECK(driver.scheduler().counters().generated_tokens == 2);
}

TEST_CASE("sequences that generate go on while a long prompt is run") {
  Driver driver({4, 8, 8, 64}, 64, 4);
  driver.add(0, 2, 20);
  driver.step();
  driver.add(1, 40, 1);
  for (int i = 0; i < 5; ++i) {
    CHECK(driver.step() == std::vector<std::int32_t>{0});
    CHECK(std::ssize(driver.plan().token_ids) == 8);  // the budget is used up
  }
  CHECK(driver.step() == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("a new sequence joins as soon as another has left") {
  Driver driver({2, 16, 16, 64}, 64, 4);
  driver.add(0, 3, 2);
  driver.add(1, 3, 9);
  driver.add(2, 3, 1);
  CHECK(driver.step() == std::vector<std::int32_t>{0, 1});
  CHECK(driver.step() == std::vector<std::int32_t>{0, 1});
  CHECK(driver.step() == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("slots and blocks of a request of P prompt and G new tokens") {
  struct Case {
    std::int64_t prompt, generated, at_prefill, at_end;
  };
  for (const Case& c : {Case{4, 1, 1, 1}, Case{4, 2, 1, 2}, Case{3, 2, 1, 1}, Case{5, 4, 2, 2},
                        Case{5, 5, 2, 3}, Case{8, 9, 2, 4}}) {
    Driver driver({4, 64, 64, 64}, 8, 4);
    driver.add(0, c.prompt, c.generated);
    driver.step();
    CHECK(driver.plan().sequences[0].blocks == c.at_prefill);
    driver.finish();
    CHECK(driver.plan().sequences[0].blocks == c.at_end);
    CHECK(driver.scheduler().blocks().peak_used_blocks() == c.at_end);
    CHECK(driver.scheduler().counters().prompt_tokens +
              driver.scheduler().counters().generated_tokens ==
          c.prompt + c.generated - 1);
  }
}

TEST_CASE("no block is lost by finished or aborted requests") {
  Driver driver({4, 16, 16, 64}, 3, 4);
  for (std::int32_t id = 0; id < 100; ++id) {
    driver.add(id, 5, 5);
    if (id % 3 == 1) {  // aborted after one token
      driver.step();
      driver.abort(id);
    } else if (id % 3 == 2) {  // aborted before it ran
      driver.abort(id);
    }
    driver.finish();
    CHECK(driver.scheduler().blocks().free_blocks() == 3);
  }
}

TEST_CASE("the youngest is preempted and runs on later without losing its place") {
  // Each ends at 19 slots, 5 blocks; the pool has 6.
  Driver driver({4, 16, 16, 64}, 6, 4);
  driver.add(0, 8, 12);
  driver.add(1, 8, 12);
  CHECK(driver.finish() < 200);
  CHECK(driver.scheduler().counters().preemptions == 1);
  CHECK(driver.scheduler().counters().recomputed_tokens > 0);
  CHECK(driver.scheduler().counters().prompt_tokens == 16);
  CHECK(driver.scheduler().counters().generated_tokens == 22);
  CHECK(driver.scheduler().blocks().free_blocks() == 6);
}

TEST_CASE("a preempted sequence goes before those that came after it") {
  Driver driver({4, 32, 32, 64}, 5, 4);
  driver.add(0, 8, 9);
  driver.add(1, 8, 9);
  driver.add(2, 4, 1);
  driver.step();
  CHECK(std::ssize(driver.plan().sequences) == 3);  // 2 + 2 + 1 blocks
  std::vector<std::int32_t> order;
  while (!driver.live_ids().empty())
    for (const std::int32_t id : driver.step()) order.push_back(id);
  CHECK(driver.scheduler().counters().preemptions >= 1);
  // Nobody starves: both long ones have got their tokens, the older one first.
  CHECK(order.back() == 1);
}

TEST_CASE("a preempted sequence of a block and a token comes back with both blocks") {
  Driver driver({2, 600, 600, 600}, 3, 256);
  driver.add(0, 255, 300);
  driver.add(1, 255, 3);
  driver.step();
  driver.step();  // 256 tokens in the cache of each: one block
  CHECK(driver.plan().sequences[1].blocks == 1);
  driver.step();  // the 257th token: 0 takes the last free block, 1 is preempted
  CHECK(driver.scheduler().counters().preemptions == 1);
  driver.abort(0);
  driver.step();
  CHECK(driver.plan().sequences[0].blocks == 2);
  CHECK(driver.plan().sequences[0].rows == 257);
}

TEST_CASE("limits that cannot work are refused all at once") {
  CHECK(SchedulerLimits{}.problems().empty());
  CHECK(SchedulerLimits{0, 0, -1, 0}.problems().size() == 4);
  CHECK(SchedulerLimits{8, 7, 0, 64}.problems().size() == 2);
  CHECK_THROWS_WITH(Scheduler({8, 7, 0, 64}, 4, 4), ContainsSubstring("--max-num-seqs 8") &&
                                                        ContainsSubstring("--max-model-len 64"));
}

TEST_CASE("a sequence that can never fit is refused") {
  Scheduler scheduler({4, 16, 16, 64}, 4, 4);
  CHECK(scheduler.max_cached_tokens() == 16);
  CHECK_THROWS_WITH(scheduler.add(0, std::vector<std::int32_t>(17)),
                    ContainsSubstring("17 tokens") && ContainsSubstring("1 to 16"));
  CHECK_THROWS_AS(scheduler.add(0, {}), Error);
  scheduler.add(0, {1});
  CHECK_THROWS_WITH(scheduler.add(0, {1}), ContainsSubstring("seq 0 is there already"));
}

TEST_CASE("100000 random steps keep the invariants and every request gets on") {
  std::uint64_t draw = 0;
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_bits(42, draw++) %
                                             static_cast<std::uint64_t>(most - least + 1));
  };
  std::int64_t steps = 0, preemptions = 0, aborts = 0;
  for (int round = 0; steps < 100'000; ++round) {
    const std::int64_t block_size = pick(1, 8), num_blocks = pick(4, 40), seqs = pick(1, 12);
    const std::int64_t budget = seqs + pick(0, 30), room = block_size * num_blocks;
    // Every third round runs prompts whole; then the longest must fit the budget.
    const bool whole = round % 3 == 2;
    const SchedulerLimits limits{seqs, budget, whole ? 0 : pick(1, 20), whole ? budget : room};
    Driver driver(limits, num_blocks, block_size);
    const std::int64_t longest = driver.scheduler().max_cached_tokens();
    std::int32_t next_id = 0;
    for (std::int64_t step = 0; step < 500; ++step, ++steps) {
      if (pick(0, 2) == 0 && std::ssize(driver.live_ids()) < 30)
        driver.add(next_id++, pick(1, longest), pick(1, 40));
      if (pick(0, 19) == 0 && !driver.live_ids().empty()) {
        const std::vector<std::int32_t> ids = driver.live_ids();
        driver.abort(ids[static_cast<std::size_t>(pick(0, std::ssize(ids) - 1))]);
        ++aborts;
      }
      driver.step();
    }
    // Without new ones every request comes to its end: nobody starves, nothing hangs.
    steps += driver.finish();
    preemptions += driver.scheduler().counters().preemptions;
    REQUIRE(driver.scheduler().blocks().free_blocks() == num_blocks);
  }
  CHECK(preemptions > 1000);
  CHECK(aborts > 1000);
}

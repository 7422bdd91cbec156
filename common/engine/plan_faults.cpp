#include "common/engine/plan_faults.h"

#include <functional>
#include <iterator>
#include <utility>

#include "common/comm/forwarding.h"
#include "common/engine/batch_plan.h"

namespace tp {

namespace {

using ChangePlan = std::function<BatchPlan(const BatchPlan&)>;

// Rank 1 receives other plans than were sent.
class ChangedPlans final : public ForwardingGroup {
 public:
  ChangedPlans(std::unique_ptr<Group> inner, ChangePlan change)
      : ForwardingGroup(std::move(inner)), change_(std::move(change)) {}

  void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override {
    ForwardingGroup::broadcast(bytes, root, patience);
    if (rank() != 1) return;
    BatchPlan plan;
    plan.decode(bytes);
    if (plan.sequences.size() > 1) change_(plan).encode(bytes);
  }

 private:
  ChangePlan change_;
};

// One sequence of a plan, with what belongs to it.
struct Part {
  PlannedSequence sequence;
  std::vector<std::int32_t> tokens;
  std::int64_t first_position;
  std::vector<std::int32_t> block_table;
};

std::vector<Part> parts_of(const BatchPlan& plan) {
  std::vector<Part> parts;
  auto token = plan.token_ids.begin();
  auto position = plan.positions.begin();
  auto block = plan.block_ids.begin();
  for (const PlannedSequence& s : plan.sequences) {
    parts.push_back({s, {token, token + s.rows}, *position, {block, block + s.blocks}});
    token += s.rows;
    position += s.rows;
    block += s.blocks;
  }
  return parts;
}

BatchPlan plan_of(const std::vector<Part>& parts, std::uint64_t step, std::int64_t block_size) {
  BatchPlan plan;
  plan.step = step;
  for (const Part& part : parts)
    plan.add(part.sequence.id, part.tokens, part.first_position, part.block_table, block_size,
             part.sequence.logit_rows);
  return plan;
}

}  // namespace

std::vector<Fault> plan_faults() {
  return {{"rank_chooses_own_blocks", "rank 1 puts a sequence into a block of another one"},
          {"shuffled_rows", "rank 1 runs the sequences of a step in reverse order"}};
}

Launch with_plan_fault(Launch launch, const std::string& fault, std::int64_t block_size) {
  ChangePlan change;
  if (fault == "rank_chooses_own_blocks")
    change = [block_size](const BatchPlan& plan) {
      std::vector<Part> parts = parts_of(plan);
      parts.front().block_table.back() = parts.back().block_table.back();
      return plan_of(parts, plan.step, block_size);
    };
  if (fault == "shuffled_rows")
    change = [block_size](const BatchPlan& plan) {
      const std::vector<Part> parts = parts_of(plan);
      return plan_of({parts.rbegin(), parts.rend()}, plan.step, block_size);
    };
  if (change)
    launch.wrap_group = [change](std::unique_ptr<Group> group) -> std::unique_ptr<Group> {
      return std::make_unique<ChangedPlans>(std::move(group), change);
    };
  return launch;
}

}  // namespace tp

#include "renamed_blocks.h"

#include <utility>

#include "common/comm/forwarding.h"
#include "common/engine/batch_plan.h"

namespace tp {

namespace {

class RenamedBlocks final : public ForwardingGroup {
 public:
  RenamedBlocks(std::unique_ptr<Group> inner, std::int64_t num_blocks, std::int64_t block_size)
      : ForwardingGroup(std::move(inner)),
        last_block_(static_cast<std::int32_t>(num_blocks - 1)),
        block_size_(static_cast<std::int32_t>(block_size)) {}

  void broadcast(std::vector<std::byte>& bytes, int root, Patience patience) override {
    ForwardingGroup::broadcast(bytes, root, patience);
    if (rank() != 1) return;
    BatchPlan plan;
    plan.decode(bytes);
    for (std::int32_t& block : plan.block_ids) block = last_block_ - block;
    for (std::int32_t& slot : plan.slot_mapping)
      slot = (last_block_ - slot / block_size_) * block_size_ + slot % block_size_;
    plan.encode(bytes);
  }

 private:
  std::int32_t last_block_, block_size_;
};

}  // namespace

Launch with_renamed_blocks(Launch launch, std::int64_t num_blocks, std::int64_t block_size) {
  launch.wrap_group = [=](std::unique_ptr<Group> group) -> std::unique_ptr<Group> {
    return std::make_unique<RenamedBlocks>(std::move(group), num_blocks, block_size);
  };
  return launch;
}

}  // namespace tp

#include "common/device/batch.h"

namespace tp {

void Batch::add(std::span<const std::int32_t> block_table,
                std::int64_t first_position,
                std::int64_t tokens) {
  const std::int64_t row = view().rows();
  for (std::int64_t p = first_position; p < first_position + tokens; ++p) {
    positions_.push_back(static_cast<std::int32_t>(p));
    slot_mapping_.push_back(static_cast<std::int32_t>(slot_of(block_table, p, block_size_)));
  }
  sequences_.push_back({{row, row + tokens}, first_position, block_table});
}

}  // namespace tp

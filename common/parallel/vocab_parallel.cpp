#include "common/parallel/vocab_parallel.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

VocabParallelTable VocabParallelTable::load(const RankContext& ctx,
                                            ConstTensorView table,
                                            const VocabShard& shard,
                                            std::optional<DType> store_as) {
  VocabParallelTable local;
  local.shard = shard;
  local.rows_local =
      ctx.device.allocate({shard.rows.size(), table.shape[1]},
                          ctx.device.storage_dtype(table.dtype, store_as), "weights");
  const Range real = shard.rows.within(table.rows());
  ctx.device.upload(table.rows_in(real), local.rows_local.view().rows_in({0, real.size()}));
  return local;
}

void VocabParallelTable::embed(const RankContext& ctx,
                               std::span<const std::int32_t> ids,
                               TensorView y,
                               std::string_view label) const {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= shard.valid)
      throw Error(ErrorKind::rank, fmt::format("{}: token id {} is not in the vocabulary of {}",
                                               label, id, shard.valid));
  ctx.device.embed(ids, rows_local, shard.rows, y);
  ctx.comm.all_reduce(y, label);
}

void VocabParallelTable::logits(const RankContext& ctx,
                                ConstTensorView hidden,
                                TensorView logits_local) const {
  ctx.device.matmul(hidden, rows_local, logits_local, SumBlocks::whole(hidden.shape[1]));
}

std::vector<Range> VocabParallelTable::valid_ranges(int tp_size) const {
  std::vector<Range> ranges;
  for (int rank = 0; rank < tp_size; ++rank)
    ranges.push_back(Range{rank, rank + 1}.times(shard.rows.size()).within(shard.valid));
  return ranges;
}

}  // namespace tp

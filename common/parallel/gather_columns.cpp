#include "common/parallel/gather_columns.h"

#include <algorithm>

namespace tp {

namespace {

std::int64_t widest(const std::vector<Range>& ranges) {
  std::int64_t width = 0;
  for (const Range& range : ranges) width = std::max(width, range.size());
  return width;
}

// Row `index` of the staging as an [M, width] matrix.
TensorView block_of(TensorView staging, std::int64_t index, std::int64_t rows, std::int64_t width) {
  TensorView block = staging.rows_in({index, index + 1});
  block.shape = {rows, width};
  block.row_stride = width;
  return block;
}

// This rank's padded shard: the last row of the staging.
TensorView pad(Device& device,
               ConstTensorView shard_local,
               TensorView staging,
               std::int64_t width) {
  TensorView padded = block_of(staging, staging.rows() - 1, shard_local.rows(), width);
  device.copy(shard_local, padded.columns_in({0, shard_local.row_elements()}));
  return padded;
}

void unpack(Device& device,
            TensorView staging,
            const std::vector<Range>& ranges,
            TensorView whole) {
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const TensorView block =
        block_of(staging, static_cast<std::int64_t>(r), whole.rows(), widest(ranges));
    device.copy(block.columns_in({0, ranges[r].size()}), whole.columns_in(ranges[r]));
  }
}

}  // namespace

Shape gather_staging_shape(std::int64_t rows, const std::vector<Range>& ranges) {
  return {static_cast<std::int64_t>(ranges.size()) + 1, rows * widest(ranges)};
}

void all_gather_columns(const RankContext& ctx,
                        ConstTensorView shard_local,
                        const std::vector<Range>& ranges,
                        TensorView staging,
                        TensorView whole,
                        std::string_view label) {
  const TensorView padded = pad(ctx.device, shard_local, staging, widest(ranges));
  ctx.comm.all_gather(padded, staging.rows_in({0, ctx.tp_size}), label);
  unpack(ctx.device, staging, ranges, whole);
}

void gather_columns(const RankContext& ctx,
                    ConstTensorView shard_local,
                    const std::vector<Range>& ranges,
                    int root,
                    TensorView staging,
                    TensorView whole,
                    std::string_view label) {
  const TensorView padded = pad(ctx.device, shard_local, staging, widest(ranges));
  ctx.comm.gather(padded, staging.rows_in({0, ctx.tp_size}), root, label);
  if (ctx.rank == root) unpack(ctx.device, staging, ranges, whole);
}

}  // namespace tp

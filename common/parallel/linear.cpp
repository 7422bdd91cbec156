#include "common/parallel/linear.h"

namespace tp {

namespace {

constexpr char kWeights[] = "weights";  // tag of the memory

// The dtype of several tensors stored as one: the first's, unless one of them needs f32. Nothing
// is rounded that would not be by itself.
DType common_dtype(const Device& device,
                   const std::vector<WholeLinear>& parts,
                   ConstTensorView WholeLinear::*tensor) {
  const auto dtype_of_part = [&](const WholeLinear& part) {
    return device.storage_dtype((part.*tensor).dtype, part.store_as);
  };
  const DType first = dtype_of_part(parts[0]);
  for (const WholeLinear& part : parts)
    if (dtype_of_part(part) != first) return DType::f32;
  return first;
}

// A bias [N] as a column of N rows, so that a range of it is a range of rows.
ConstTensorView as_rows(ConstTensorView bias) {
  return {bias.data, {bias.shape.elements()}, bias.dtype, bias.place, 1};
}

}  // namespace

TensorView sum_over_ranks(const RankContext& ctx, PartialSum partial, std::string_view label) {
  ctx.comm.all_reduce(partial.addend, label);
  return partial.addend;
}

ColumnParallelLinear ColumnParallelLinear::shard(const RankContext& ctx, const WholeLinear& whole) {
  return shard_rows(ctx, whole, shard_range(whole.weight.rows(), ctx.rank, ctx.tp_size));
}

ColumnParallelLinear ColumnParallelLinear::shard_rows(const RankContext& ctx,
                                                      const WholeLinear& whole,
                                                      Range rows) {
  ColumnParallelLinear layer;
  layer.out_global = rows;
  layer.weight_local = ctx.device.upload(whole.weight.rows_in(rows), whole.store_as, kWeights);
  if (whole.bias.data != nullptr)
    layer.bias_local =
        ctx.device.upload(as_rows(whole.bias).rows_in(rows), whole.store_as, kWeights);
  return layer;
}

ColumnParallelLinear ColumnParallelLinear::shard_fused(const RankContext& ctx,
                                                       const std::vector<WholeLinear>& parts) {
  const WholeLinear& first = parts.at(0);
  ColumnParallelLinear layer;
  layer.out_global = shard_range(first.weight.rows(), ctx.rank, ctx.tp_size);
  const std::int64_t rows = layer.out_global.size();
  const std::int64_t all_rows = rows * static_cast<std::int64_t>(parts.size());
  layer.weight_local =
      ctx.device.allocate({all_rows, first.weight.shape[1]},
                          common_dtype(ctx.device, parts, &WholeLinear::weight), kWeights);
  if (first.bias.data != nullptr)
    layer.bias_local = ctx.device.allocate(
        {all_rows}, common_dtype(ctx.device, parts, &WholeLinear::bias), kWeights);
  Range place{0, rows};  // of this part among the local rows
  for (const WholeLinear& part : parts) {
    ctx.device.upload(part.weight.rows_in(layer.out_global),
                      layer.weight_local.view().rows_in(place));
    if (part.bias.data != nullptr)
      ctx.device.upload(as_rows(part.bias).rows_in(layer.out_global),
                        layer.bias_local.view().rows_in(place));
    place = {place.end, place.end + rows};
  }
  return layer;
}

void ColumnParallelLinear::forward(const RankContext& ctx,
                                   ConstTensorView x,
                                   TensorView y_local) const {
  ctx.device.matmul(x, weight_local, y_local, SumBlocks::whole(x.shape[1]));
  if (!bias_local.empty()) ctx.device.add_bias(y_local, bias_local);
}

RowParallelLinear RowParallelLinear::shard(const RankContext& ctx,
                                           const WholeLinear& whole,
                                           std::int64_t unit) {
  RowParallelLinear layer;
  const std::int64_t in = whole.weight.shape[1];
  layer.blocks = SumBlocks::of_rank(in, ctx.rank, ctx.tp_size, unit);
  layer.in_global = shard_range(in / unit, ctx.rank, ctx.tp_size).times(unit);
  layer.weight_local =
      ctx.device.upload(whole.weight.columns_in(layer.in_global), whole.store_as, kWeights);
  if (whole.bias.data != nullptr)
    layer.bias = ctx.device.upload(whole.bias, whole.store_as, kWeights);
  return layer;
}

PartialSum RowParallelLinear::partial(const RankContext& ctx,
                                      ConstTensorView x_local,
                                      TensorView y) const {
  ctx.device.matmul(x_local, weight_local, y, blocks);
  return {y};
}

TensorView RowParallelLinear::finish(const RankContext& ctx,
                                     PartialSum partial,
                                     std::string_view label) const {
  const TensorView sum = sum_over_ranks(ctx, partial, label);
  if (!bias.empty()) ctx.device.add_bias(sum, bias);
  return sum;
}

void RowParallelLinear::forward(const RankContext& ctx,
                                ConstTensorView x_local,
                                TensorView y,
                                std::string_view label) const {
  finish(ctx, partial(ctx, x_local, y), label);
}

}  // namespace tp

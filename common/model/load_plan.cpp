#include "common/model/load_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tp {

namespace {

BytePieces pieces_of(ConstTensorView shard, std::int64_t first) {
  const auto size = static_cast<std::int64_t>(size_of(shard.dtype));
  if (shard.contiguous()) return {first, shard.bytes(), 1, 0};
  return {first, shard.row_elements() * size, shard.rows(), shard.row_stride * size};
}

PlannedTensor plan_tensor(const std::string& name,
                          const Weights& weights,
                          const ModelConfig& config,
                          int tp_size) {
  const ConstTensorView whole = weights.tensor(name);
  PlannedTensor tensor{name, whole.shape, whole.dtype};
  tensor.file = weights.files().place_of(whole.data).file;
  const std::optional<TensorSplit> split = split_of(name);
  if (split) tensor.axis = split->axis;
  for (int rank = 0; rank < tp_size; ++rank) {
    ConstTensorView mine = whole;
    PlannedShard shard{{0, whole.rows()}, whole.shape, {}};
    if (split) {
      shard.part = split->part(config, rank, tp_size);
      const bool rows = split->axis == SplitAxis::rows;
      mine = rows ? whole.rows_in(shard.part.within(whole.rows())) : whole.columns_in(shard.part);
      shard.local = rows ? whole.shape.with_rows(shard.part.size()) : mine.shape;
    }
    const std::int64_t first =
        weights.files().place_of(whole.data).offset + (mine.data - whole.data);
    shard.pieces = pieces_of(mine, first);
    tensor.shards.push_back(shard);
  }
  return tensor;
}

}  // namespace

LoadPlan LoadPlan::of(const Weights& weights, const ModelConfig& config, int tp_size) {
  LoadPlan plan;
  for (const std::string& name : weights.tensor_names())
    plan.tensors.push_back(plan_tensor(name, weights, config, tp_size));
  return plan;
}

std::int64_t LoadPlan::bytes(int rank) const {
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors)
    bytes += tensor.shards[static_cast<std::size_t>(rank)].pieces.all_bytes();
  return bytes;
}

std::int64_t LoadPlan::pages(int rank) const {
  std::vector<std::pair<std::size_t, Range>> touched;  // a file, and pages of it
  for (const PlannedTensor& tensor : tensors) {
    const BytePieces& pieces = tensor.shards[static_cast<std::size_t>(rank)].pieces;
    for (std::int64_t i = 0; i < pieces.count && pieces.bytes > 0; ++i) {
      const std::int64_t begin = pieces.first + i * pieces.stride;
      const Range pages{begin / kPageBytes, (begin + pieces.bytes - 1) / kPageBytes + 1};
      if (!touched.empty() && touched.back().first == tensor.file &&
          touched.back().second.begin <= pages.begin && pages.begin <= touched.back().second.end)
        touched.back().second.end = std::max(touched.back().second.end, pages.end);
      else
        touched.emplace_back(tensor.file, pages);
    }
  }
  std::sort(touched.begin(), touched.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.begin) < std::pair(b.first, b.second.begin);
  });
  std::int64_t count = 0, counted_to = 0;
  std::size_t file = 0;
  for (const auto& [in_file, pages] : touched) {
    if (std::exchange(file, in_file) != in_file) counted_to = 0;
    count += std::max<std::int64_t>(0, pages.end - std::max(pages.begin, counted_to));
    counted_to = std::max(counted_to, pages.end);
  }
  return count;
}

}  // namespace tp

#include "common/model/load_plan.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/model/decoder.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// What is dealt to the ranks.
enum class Unit : std::uint8_t { query_heads, kv_heads, features, ids };

struct Split {
  std::string_view module;
  SplitAxis axis;
  Unit unit;
};

// All that is split. Column-parallel layers are split by rows here, since weights are stored as
// [out, in].
constexpr std::array kSplits{
    Split{"embed_tokens.", SplitAxis::rows, Unit::ids},
    Split{"lm_head.", SplitAxis::rows, Unit::ids},
    Split{"self_attn.q_proj.", SplitAxis::rows, Unit::query_heads},
    Split{"self_attn.k_proj.", SplitAxis::rows, Unit::kv_heads},
    Split{"self_attn.v_proj.", SplitAxis::rows, Unit::kv_heads},
    Split{"self_attn.o_proj.", SplitAxis::columns, Unit::query_heads},
    Split{"mlp.gate_proj.", SplitAxis::rows, Unit::features},
    Split{"mlp.up_proj.", SplitAxis::rows, Unit::features},
    Split{"mlp.down_proj.", SplitAxis::columns, Unit::features},
};

// Nothing for norms, and for the biases of row-parallel layers, which are added after the sum.
const Split* split_of(std::string_view name) {
  const auto* found = std::find_if(kSplits.begin(), kSplits.end(), [&](const Split& split) {
    return name.find(split.module) != name.npos;
  });
  const bool bias_of_a_sum =
      found != kSplits.end() && found->axis == SplitAxis::columns && name.ends_with(".bias");
  return found == kSplits.end() || bias_of_a_sum ? nullptr : found;
}

Range part_of(Unit unit, const ModelConfig& config, int rank, int tp_size) {
  const DecoderShard shard = DecoderShard::of(config, rank, tp_size);
  switch (unit) {
    case Unit::query_heads:
      return shard.heads.query.times(config.head_dim);
    case Unit::kv_heads:
      return shard.kv_loaded.times(config.head_dim);
    case Unit::features:
      return shard_range(config.intermediate_size, rank, tp_size);
    case Unit::ids:
      return shard.vocab.rows;  // with pads
  }
  return {};
}

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
  const Split* const split = split_of(name);
  if (split != nullptr) tensor.axis = split->axis;
  for (int rank = 0; rank < tp_size; ++rank) {
    ConstTensorView mine = whole;
    PlannedShard shard{{0, whole.rows()}, whole.shape, {}};
    if (split != nullptr) {
      shard.part = part_of(split->unit, config, rank, tp_size);
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

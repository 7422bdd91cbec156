#include "common/model/tensor_split.h"

#include <algorithm>
#include <array>

#include "common/model/decoder.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

struct ModuleSplit {
  std::string_view module;
  TensorSplit split;
};

using Unit = TensorSplit::Unit;

// All that is split. Column-parallel layers are split by rows here, since weights are stored as
// [out, in].
constexpr std::array kSplits{
    ModuleSplit{"embed_tokens.", {SplitAxis::rows, Unit::ids}},
    ModuleSplit{"lm_head.", {SplitAxis::rows, Unit::ids}},
    ModuleSplit{"self_attn.q_proj.", {SplitAxis::rows, Unit::query_heads}},
    ModuleSplit{"self_attn.k_proj.", {SplitAxis::rows, Unit::kv_heads}},
    ModuleSplit{"self_attn.v_proj.", {SplitAxis::rows, Unit::kv_heads}},
    ModuleSplit{"self_attn.o_proj.", {SplitAxis::columns, Unit::query_heads}},
    ModuleSplit{"mlp.gate_proj.", {SplitAxis::rows, Unit::features}},
    ModuleSplit{"mlp.up_proj.", {SplitAxis::rows, Unit::features}},
    ModuleSplit{"mlp.down_proj.", {SplitAxis::columns, Unit::features}},
};

}  // namespace

std::optional<TensorSplit> split_of(std::string_view tensor_name) {
  const auto* found = std::find_if(kSplits.begin(), kSplits.end(), [&](const ModuleSplit& module) {
    return tensor_name.find(module.module) != tensor_name.npos;
  });
  if (found == kSplits.end()) return std::nullopt;
  const bool bias_of_a_sum =
      found->split.axis == SplitAxis::columns && tensor_name.ends_with(".bias");
  return bias_of_a_sum ? std::nullopt : std::optional(found->split);
}

Range TensorSplit::part(const ModelConfig& config, int rank, int tp_size) const {
  const DecoderShard shard = DecoderShard::of(config, rank, tp_size);
  switch (unit) {
    case Unit::query_heads:
      return shard.heads.query.times(config.head_dim);
    case Unit::kv_heads:
      return shard.kv_loaded.times(config.head_dim);
    case Unit::features:
      return shard_range(config.intermediate_size, rank, tp_size);
    case Unit::ids:
      return shard.vocab.rows;
  }
  return {};
}

}  // namespace tp

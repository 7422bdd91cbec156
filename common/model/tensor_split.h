// Which dimension of a weight is split over the ranks, by its name. [introduced in chapter 06]
//
// Plans are made of it: which bytes each rank reads (load_plan.h), how many it will hold (plan/). The
// decoder does not ask it, but its layers; so a plan that is wrong is found out by the loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/core/range.h"
#include "common/model/config.h"

namespace tp {

enum class SplitAxis : std::uint8_t {
  none,     // every rank has all of it
  rows,     // output features, or ids
  columns,  // input features
};

struct TensorSplit {
  enum class Unit : std::uint8_t { query_heads, kv_heads, features, ids };  // what is dealt out

  SplitAxis axis = SplitAxis::none;
  Unit unit = Unit::features;

  // The rank's part of the dimension that is split, as global indices; with the pads of the
  // vocabulary.
  Range part(const ModelConfig& config, int rank, int tp_size) const;
};

// Nothing for norms, and for the biases of row-parallel layers, which are added after the sum.
std::optional<TensorSplit> split_of(std::string_view tensor_name);

}  // namespace tp

// Which layout to begin with, and what helps if none holds the load. [introduced in chapter 08]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/plan/layout.h"

namespace tp {

// The layout with the fewest cards that holds the load; of several, the one with the fewest stages.
// A point to begin measuring from, no more. Source: article 002, "它是实验起点，不是性能最优值".
std::optional<std::size_t> smallest_that_holds(const PlanInput& input,
                                               std::span<const LayoutPlan> layouts);

// The usable layout with the most blocks: the nearest to holding the load.
std::optional<std::size_t> roomiest(std::span<const LayoutPlan> layouts);

// `from` ranks have the least KV cache on a card; with `to` ranks, the next, and with more than
// those, only the weights shrink. Source: article 002, "权重变小，不代表所有显存都按比例变小".
struct KvStopsShrinking {
  int from = 0, to = 0;
  std::int64_t bytes_per_token = 0;  // on the card with the most, at `from`
};
// Nothing if the last of the usable layouts has less than all before it. Layouts with as many stages
// as the first are looked at; they stand in order of tp.
std::optional<KvStopsShrinking> kv_stops_shrinking(std::span<const LayoutPlan> layouts);

// One change, and what it does to a layout that does not hold the load.
struct Remedy {
  std::string change;                  // "--max-model-len 8192 to 4096"
  std::optional<std::int64_t> blocks;  // that fit then; nothing if it cannot be done
  std::int64_t needed_blocks = 0;      // by the load as it is then
  std::string remark;                  // what it costs, or why it cannot be done

  bool holds() const { return blocks && *blocks >= needed_blocks; }
};

// The remedies of article 001, section 6.1, and of article 002, each by itself. One that needs more
// than `cards_there` cards cannot be done; without the number, cards can be had.
std::vector<Remedy> remedies(const PlanInput& input,
                             const LayoutPlan& layout,
                             std::optional<int> cards_there = {},
                             const CardHook& hook = {});

}  // namespace tp

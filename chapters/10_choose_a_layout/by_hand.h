// The best partition of a machine by trying all of them.
#pragma once

#include <cstddef>
#include <vector>

#include "common/topology/machine.h"

namespace tp {

// Above this number of cards there are too many partitions: 105 of 8 cards into pairs, 2,027,025 of
// 16.
inline constexpr std::size_t kMaxCardsByHand = 8;

// The groups of `tp` cards, by lowest card, each with its lowest card first.
std::vector<std::vector<std::size_t>> best_partition_by_hand(const Machine& machine,
                                                             std::size_t tp);

}  // namespace tp

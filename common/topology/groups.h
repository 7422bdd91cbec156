// Which cards belong together: TP groups of a machine. [introduced in chapter 10]
//
// The order of groups of one size. The better group is the one
//   1. whose links of all pairs, sorted from the worst up, are greater at the first difference;
//   2. then the one at fewer NUMA nodes;
//   3. then the one with the lower numbers, card by card.
// The order of partitions of all cards into groups of one size: their groups, sorted from the worst
// up, are compared by 1 and 2; then the partition with the lower numbers, group by group. So the
// worst group decides, and the best single group may be split up if that helps the worst one.
// Inside a group the ranks go around a ring: that whose links of neighbours, sorted from the worst
// up, are greatest; it begins with the lowest card, and of equal rings the one with the lower numbers
// counts. NCCL looks for rings of its own; an all-reduce from rank to rank follows this one.
// Links order candidates. What they are worth is measured.
// Source: article 002, section A6000 的双卡 NVLink.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/topology/machine.h"

namespace tp {

// More would take too long, since all groups are looked at.
inline constexpr std::size_t kMaxGroupedCards = 16;

struct Group {
  std::vector<std::size_t> cards;  // indices into Machine::cards, lowest first
  std::vector<Link> links;         // of all pairs, the worst first
  std::size_t places = 0;          // how many different NUMA nodes
  std::vector<std::size_t> order;  // the cards in rank order, if the group is recommended

  std::optional<Link> worst() const {
    return links.empty() ? std::nullopt : std::optional(links.front());
  }
};

// These cards as a group, without a rank order.
Group make_group(const Machine& machine, std::vector<std::size_t> cards);

// Whether a comes before b by 1 and 2, for groups of the same size.
bool has_better_links(const Group& a, const Group& b);

// One tp size, and what is recommended for it, in rank order.
struct GroupPlan {
  std::size_t tp = 0;
  Group best;                 // the best group, if there is only one
  std::vector<Group> groups;  // the best partition, by lowest card

  // The worst link inside any group; nothing for groups of one card.
  std::optional<Link> worst() const;
};

// The best group and the best partition into groups of `tp` cards.
// Errors: tp::Error (input) if there are no cards or more than kMaxGroupedCards, or if tp does not
//         divide them.
GroupPlan plan_groups(const Machine& machine, std::size_t tp);

// All sizes that divide `cards`.
std::vector<std::size_t> group_sizes(std::size_t cards);

}  // namespace tp

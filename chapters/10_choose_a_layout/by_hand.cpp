#include "by_hand.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace tp {

namespace {

using Cards = std::vector<std::size_t>;

// [region by_hand]
// What a group is compared by, greater is better: links from the worst up, then fewer NUMA nodes.
using Quality = std::pair<std::vector<Link>, int>;

Quality quality_of(const Machine& machine, const Cards& group) {
  std::vector<Link> links;
  std::set<std::string> nodes;
  for (const std::size_t i : group) {
    nodes.insert(machine.cards[i].place());
    for (const std::size_t j : group)
      if (i < j) links.push_back(machine.link(i, j));
  }
  std::sort(links.begin(), links.end());
  return {links, -static_cast<int>(nodes.size())};
}

// Tries all partitions, those with the lower numbers first, and keeps the best.
struct Trial {
  const Machine& machine;
  std::size_t tp;
  std::vector<Cards> groups, best;
  std::vector<Quality> best_quality;

  void place(const Cards& rest) {
    if (rest.empty()) return judge();
    const bool begins = groups.empty() || groups.back().size() == tp;
    for (std::size_t i = 0; i < (begins ? 1 : rest.size()); ++i) {
      if (!begins && rest[i] < groups.back().back()) continue;  // the same group in another order
      Cards others = rest;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (begins) groups.emplace_back();
      groups.back().push_back(rest[i]);
      place(others);
      groups.back().pop_back();
      if (begins) groups.pop_back();
    }
  }

  void judge() {
    std::vector<Quality> quality;
    for (const Cards& group : groups) quality.push_back(quality_of(machine, group));
    std::sort(quality.begin(), quality.end());  // the worst group first
    if (!best.empty() && quality <= best_quality) return;
    best = groups;
    best_quality = quality;
  }
};
// [end by_hand]

}  // namespace

std::vector<Cards> best_partition_by_hand(const Machine& machine, std::size_t tp) {
  Cards all(machine.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  Trial trial{machine, tp, {}, {}, {}};
  trial.place(all);
  return trial.best;
}

}  // namespace tp

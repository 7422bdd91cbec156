#include "common/topology/groups.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

// A set of cards: bit i is card i.
using Cards = std::uint32_t;

std::vector<std::size_t> indices_of(Cards set) {
  std::vector<std::size_t> indices;
  for (; set != 0; set &= set - 1)
    indices.push_back(static_cast<std::size_t>(std::countr_zero(set)));
  return indices;
}

Cards lowest(Cards set) {
  return set & (~set + 1);
}

// Of sets of one size, whether a's cards are the lower ones at the first difference.
bool has_lower_numbers(Cards a, Cards b) {
  return (a & lowest(a ^ b)) != 0;
}

// Searches all partitions of a machine into groups of one size, each set of cards once.
class Partitioner {
 public:
  Partitioner(const Machine& machine, std::size_t tp)
      : tp_(static_cast<int>(tp)),
        all_((Cards{1} << machine.size()) - 1),
        rank_(all_ + 1),
        best_(all_ + 1) {
    rank_all_groups(machine);
  }

  Cards best_group() const {
    Cards best = 0;
    for (Cards set = 1; set <= all_; ++set)
      if (std::popcount(set) == tp_ &&
          (best == 0 || rank_[set] < rank_[best] ||
           (rank_[set] == rank_[best] && has_lower_numbers(set, best))))
        best = set;
    return best;
  }

  std::vector<Cards> best_partition() {
    std::vector<Cards> groups;
    for (Cards rest = all_; rest != 0; rest &= ~groups.back()) groups.push_back(solve(rest).first);
    return groups;
  }

 private:
  // The best partition of a set: its group with the lowest card, and the ranks of all its groups,
  // worst first.
  struct Best {
    Cards first = 0;
    std::vector<std::uint32_t> ranks;
  };

  // Groups that are equal by links and NUMA nodes get one rank; 0 is the best.
  void rank_all_groups(const Machine& machine) {
    const auto better = [](const Group& a, const Group& b) { return has_better_links(a, b); };
    std::map<Group, std::vector<Cards>, decltype(better)> by_key(better);
    for (Cards set = 1; set <= all_; ++set)
      if (std::popcount(set) == tp_) by_key[make_group(machine, indices_of(set))].push_back(set);
    std::uint32_t rank = 0;
    for (const auto& [key, sets] : by_key) {
      for (const Cards set : sets) rank_[set] = rank;
      ++rank;
    }
  }

  // An equal addend changes no comparison of two sorted lists, so the best partition of the rest is
  // always part of the best one of the whole.
  const Best& solve(Cards set) {
    Best& best = best_[set];
    if (set == 0 || best.first != 0) return best;
    const Cards low = lowest(set), others = set & ~low;
    for (Cards part = others;; part = (part - 1) & others) {
      const Cards group = part | low;
      if (std::popcount(group) == tp_) {
        std::vector<std::uint32_t> ranks = solve(set & ~group).ranks;
        ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank_[group], std::greater<>()),
                     rank_[group]);
        if (best.first == 0 || ranks < best.ranks ||
            (ranks == best.ranks && has_lower_numbers(group, best.first)))
          best = {group, std::move(ranks)};
      }
      if (part == 0) return best;
    }
  }

  int tp_;
  Cards all_;
  std::vector<std::uint32_t> rank_;
  std::vector<Best> best_;
};

// The links of a ring as a number that adds up: 5 bits for each kind of link, the worst kind in the
// highest bits, so that less is better. Beyond 12 kinds the best ones count as one.
class RingCost {
 public:
  RingCost(const Machine& machine, const Group& group) : machine_(machine) {
    for (const Link link : group.links)
      if (kinds_.size() < kMaxKinds && (kinds_.empty() || kinds_.back() != link))
        kinds_.push_back(link);
  }
  std::uint64_t of(std::size_t i, std::size_t j) const {
    const auto kind = std::find(kinds_.begin(), kinds_.end(), machine_.link(i, j)) - kinds_.begin();
    const auto place = std::min<std::ptrdiff_t>(kind, kMaxKinds - 1);
    return std::uint64_t{1} << (5 * (kMaxKinds - 1 - place));
  }

 private:
  static constexpr std::ptrdiff_t kMaxKinds = 12;
  const Machine& machine_;
  std::vector<Link> kinds_;  // the worst first
};

std::vector<std::size_t> rank_order(const Machine& machine, const Group& group) {
  const std::size_t count = group.cards.size();
  const RingCost cost(machine, group);
  const auto between = [&](std::size_t a, std::size_t b) {
    return cost.of(group.cards[a], group.cards[b]);
  };
  // way[visited][last]: the least cost of the way from `last` over all cards that are not visited,
  // back to card 0.
  const Cards all = (Cards{1} << count) - 1;
  std::vector<std::vector<std::uint64_t>> way(all + 1, std::vector<std::uint64_t>(count));
  const auto step = [&](Cards visited, std::size_t last, std::size_t next) {
    return between(last, next) + way[visited | Cards{1} << next][next];
  };
  for (Cards visited = all; visited != 0; --visited) {
    for (const std::size_t last : indices_of(visited)) {
      if (visited == all) {
        way[visited][last] = last == 0 ? 0 : between(last, 0);
        continue;
      }
      std::uint64_t least = ~std::uint64_t{0};
      for (const std::size_t next : indices_of(all & ~visited))
        least = std::min(least, step(visited, last, next));
      way[visited][last] = least;
    }
  }
  std::vector<std::size_t> order{group.cards[0]};
  Cards visited = 1;
  for (std::size_t last = 0; visited != all;) {
    for (const std::size_t next : indices_of(all & ~visited)) {
      if (step(visited, last, next) != way[visited][last]) continue;
      order.push_back(group.cards[next]);
      visited |= Cards{1} << next;
      last = next;
      break;
    }
  }
  return order;
}

}  // namespace

Group make_group(const Machine& machine, std::vector<std::size_t> cards) {
  Group group;
  std::sort(cards.begin(), cards.end());
  std::set<std::string> places;
  for (std::size_t a = 0; a < cards.size(); ++a) {
    places.insert(machine.cards.at(cards[a]).place());
    for (std::size_t b = 0; b < a; ++b) group.links.push_back(machine.link(cards[a], cards[b]));
  }
  std::sort(group.links.begin(), group.links.end());
  group.places = places.size();
  group.cards = std::move(cards);
  return group;
}

bool has_better_links(const Group& a, const Group& b) {
  if (a.links != b.links) return a.links > b.links;
  return a.places < b.places;
}

std::vector<std::size_t> group_sizes(std::size_t cards) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size <= cards; ++size)
    if (cards % size == 0) sizes.push_back(size);
  return sizes;
}

std::optional<Link> GroupPlan::worst() const {
  std::optional<Link> worst;
  for (const Group& group : groups)
    if (group.worst() && (!worst || *group.worst() < *worst)) worst = group.worst();
  return worst;
}

GroupPlan plan_groups(const Machine& machine, std::size_t tp) {
  if (machine.size() == 0 || machine.size() > kMaxGroupedCards)
    throw input_error(
        fmt::format("{} cards: groups are looked for among 1 to {} cards; choose some of them with "
                    "--visible, for example --visible 0,1,2,3",
                    machine.size(), kMaxGroupedCards));
  if (tp > machine.size())
    throw input_error(fmt::format("tp={}: {} cards are here, {} needed; sizes that work: {}", tp,
                                  machine.size(), tp,
                                  fmt::join(group_sizes(machine.size()), ", ")));
  if (tp == 0 || machine.size() % tp != 0)
    throw input_error(fmt::format(
        "tp={}: does not divide {} cards; sizes that do: {}; or choose some of them with --visible",
        tp, machine.size(), fmt::join(group_sizes(machine.size()), ", ")));
  Partitioner partitioner(machine, tp);
  const auto recommended = [&](Cards set) {
    Group group = make_group(machine, indices_of(set));
    group.order = rank_order(machine, group);
    return group;
  };
  GroupPlan plan;
  plan.tp = tp;
  plan.best = recommended(partitioner.best_group());
  for (const Cards set : partitioner.best_partition()) plan.groups.push_back(recommended(set));
  return plan;
}

}  // namespace tp

#include "common/topology/groups.h"

#include <algorithm>
#include <numeric>

#include "common/core/error.h"
#include "common/core/random.h"
#include "tests/catch.h"
#include "tests/topology/sample_texts.h"

using namespace tp;

namespace {

using Cards = std::vector<std::size_t>;
using Partition = std::vector<Cards>;

// ---- an oracle that tries everything, written from the stated order alone ----

// Links of all pairs as numbers, worst first, then minus the number of places.
std::vector<int> quality(const Machine& machine, const Cards& cards) {
  std::vector<int> links;
  std::vector<std::string> places;
  for (std::size_t a = 0; a < cards.size(); ++a) {
    places.push_back(machine.cards[cards[a]].place());
    for (std::size_t b = a + 1; b < cards.size(); ++b) {
      const std::string name = machine.link(cards[a], cards[b]).name();
      const std::vector<std::string> pcie{"SYS", "NODE", "PHB", "PXB", "PIX"};
      const auto found = std::find(pcie.begin(), pcie.end(), name);
      links.push_back(found == pcie.end() ? 100 + std::stoi(name.substr(2))
                                          : static_cast<int>(found - pcie.begin()));
    }
  }
  std::sort(links.begin(), links.end());
  std::sort(places.begin(), places.end());
  const auto different = std::unique(places.begin(), places.end()) - places.begin();
  links.push_back(-static_cast<int>(different));
  return links;
}

void all_partitions(const Cards& rest,
                    std::size_t tp,
                    Partition& so_far,
                    std::vector<Partition>& found) {
  if (rest.empty()) return found.push_back(so_far);
  std::vector<bool> chosen(rest.size() - 1);
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(tp) - 1, true);
  do {
    Cards group{rest[0]}, others;
    for (std::size_t i = 1; i < rest.size(); ++i)
      (chosen[i - 1] ? group : others).push_back(rest[i]);
    so_far.push_back(group);
    all_partitions(others, tp, so_far, found);
    so_far.pop_back();
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
}

std::vector<Partition> all_partitions(std::size_t cards, std::size_t tp) {
  Cards all(cards);
  std::iota(all.begin(), all.end(), std::size_t{0});
  Partition so_far;
  std::vector<Partition> found;
  all_partitions(all, tp, so_far, found);
  return found;
}

// What a partition is compared by; greater is better.
std::vector<std::vector<int>> quality(const Machine& machine, const Partition& partition) {
  std::vector<std::vector<int>> groups;
  for (const Cards& group : partition) groups.push_back(quality(machine, group));
  std::sort(groups.begin(), groups.end());
  return groups;
}

Partition best_by_trying(const Machine& machine, std::size_t tp) {
  const std::vector<Partition> all = all_partitions(machine.size(), tp);
  return *std::max_element(all.begin(), all.end(), [&](const Partition& a, const Partition& b) {
    const auto qa = quality(machine, a), qb = quality(machine, b);
    return qa != qb ? qa < qb : a > b;
  });
}

Cards best_group_by_trying(const Machine& machine, std::size_t tp) {
  std::vector<bool> chosen(machine.size());
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(tp), true);
  Cards best;
  do {
    Cards group;
    for (std::size_t i = 0; i < machine.size(); ++i)
      if (chosen[i]) group.push_back(i);
    if (best.empty() || quality(machine, group) > quality(machine, best)) best = group;
  } while (std::prev_permutation(chosen.begin(), chosen.end()));  // lowest numbers first
  return best;
}

std::vector<int> ring(const Machine& machine, const Cards& order) {
  std::vector<int> links;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Cards pair{order[i], order[(i + 1) % order.size()]};
    links.push_back(quality(machine, pair)[0]);
  }
  std::sort(links.begin(), links.end());
  return links;
}

Cards best_ring_by_trying(const Machine& machine, Cards cards) {
  std::sort(cards.begin(), cards.end());
  Cards best = cards;
  while (std::next_permutation(cards.begin() + 1, cards.end()))
    if (ring(machine, cards) > ring(machine, best)) best = cards;
  return best;
}

Partition cards_of(const std::vector<Group>& groups) {
  Partition partition;
  for (const Group& group : groups) partition.push_back(group.cards);
  return partition;
}

// `n` cards with random links of a few kinds at a few places.
Machine random_machine(std::size_t n, std::uint64_t seed) {
  const std::vector<Link> kinds{Link::sys(), Link::node(), Link::pix(), Link::nvlink(2),
                                Link::nvlink(4)};
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t count) {
    return static_cast<std::size_t>(random_bits(seed, draws++) % count);
  };
  Machine machine;
  const std::size_t used_kinds = 2 + below(kinds.size() - 1);
  for (std::size_t i = 0; i < n; ++i) {
    Card card;
    card.number = static_cast<int>(i);
    card.numa = std::to_string(below(2));
    machine.cards.push_back(card);
    machine.links.emplace_back(n, Link::sys());
    for (std::size_t j = 0; j < i; ++j)
      machine.links[i][j] = machine.links[j][i] = kinds[below(used_kinds)];
  }
  return machine;
}

void expect_best(const Machine& machine) {
  for (const std::size_t tp : group_sizes(machine.size())) {
    CAPTURE(tp);
    const GroupPlan plan = plan_groups(machine, tp);
    CHECK(plan.tp == tp);
    CHECK(cards_of(plan.groups) == best_by_trying(machine, tp));
    CHECK(plan.best.cards == best_group_by_trying(machine, tp));
    for (const Group& group : plan.groups)
      if (tp <= 7) CHECK(group.order == best_ring_by_trying(machine, group.cards));
  }
}

Partition partition_of(const std::string& sample, std::size_t tp) {
  return cards_of(plan_groups(sample_machine(sample), tp).groups);
}

Link worst_of(const std::string& sample, std::size_t tp) {
  return plan_groups(sample_machine(sample), tp).worst().value();
}

}  // namespace

TEST_CASE("the recommendation is the best of all partitions of every sample of up to 8 cards") {
  std::size_t checked = 0;
  for (const std::string& name : machine_samples()) {
    const Machine machine = sample_machine(name);
    if (machine.size() > 8) continue;
    INFO(name);
    expect_best(machine);
    ++checked;
  }
  CHECK(checked > 10);
}

TEST_CASE("the recommendation is the best of all partitions of random machines") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    expect_best(random_machine(seed % 3 == 0 ? 6 : seed % 3 == 1 ? 8 : 1 + seed % 8, seed));
  }
}

TEST_CASE("NVSwitch: all links are equal, so groups stay at one NUMA node") {
  CHECK(partition_of("dgx_h100", 8) == Partition{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(partition_of("dgx_h100", 4) == Partition{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(partition_of("dgx_h100", 2) == Partition{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  for (const std::size_t tp : {2, 4, 8}) CHECK(worst_of("dgx_h100", tp) == Link::nvlink(18));
  // The cards of a node need not be neighbours by number.
  CHECK(partition_of("a100_four", 2) == Partition{{0, 1}, {2, 3}});
  CHECK(partition_of("pcie_switches", 4) == Partition{{0, 2, 5, 7}, {1, 3, 4, 6}});
}

TEST_CASE("bridges join pairs and nothing else") {
  CHECK(partition_of("a6000_pairs", 2) == Partition{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(partition_of("a6000_pairs", 4) == Partition{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(worst_of("a6000_pairs", 2) == Link::nvlink(4));
  CHECK(worst_of("a6000_pairs", 4) == Link::node());
  CHECK(worst_of("a6000_pairs", 8) == Link::sys());
  CHECK(partition_of("a100_nv12_pairs", 2) == Partition{{0, 2}, {1, 3}});
}

TEST_CASE("two cards below one host bridge") {
  CHECK(partition_of("workstation", 2) == Partition{{0, 1}});
  CHECK(worst_of("workstation", 2) == Link::phb());
}

TEST_CASE("a hybrid cube mesh: pairs by two NVLinks, squares inside a socket, a ring over all") {
  CHECK(partition_of("dgx1_v100", 2) == Partition{{0, 3}, {1, 2}, {4, 7}, {5, 6}});
  CHECK(worst_of("dgx1_v100", 2) == Link::nvlink(2));
  CHECK(partition_of("dgx1_v100", 4) == Partition{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(worst_of("dgx1_v100", 4) == Link::nvlink(1));
  CHECK(worst_of("dgx1_v100", 8) == Link::sys());
  const Machine machine = sample_machine("dgx1_v100");
  const Group all = plan_groups(machine, 8).groups.at(0);
  const Cards order = all.order;
  CHECK(order == Cards{0, 3, 2, 1, 5, 6, 7, 4});
  CHECK(ring(machine, order) == std::vector<int>(8, 102));  // two NVLinks all the way round
}

TEST_CASE("the worst group decides, so the best group alone may be split up") {
  // 0-1 is the best pair, but then 2-3 remain with SYS.
  Machine machine = random_machine(4, 0);
  for (auto& row : machine.links) std::fill(row.begin(), row.end(), Link::sys());
  const auto join = [&](std::size_t i, std::size_t j, Link link) {
    machine.links[i][j] = machine.links[j][i] = link;
  };
  join(0, 1, Link::nvlink(4));
  join(0, 2, Link::pix());
  join(1, 3, Link::pix());
  const GroupPlan plan = plan_groups(machine, 2);
  CHECK(plan.best.cards == Cards{0, 1});
  CHECK(cards_of(plan.groups) == Partition{{0, 2}, {1, 3}});
}

TEST_CASE("sixteen cards") {
  CHECK(partition_of("pcie_16", 2).at(7) == Cards{14, 15});
  CHECK(partition_of("pcie_16", 4).at(3) == Cards{12, 13, 14, 15});
  CHECK(partition_of("pcie_16", 8).at(1) == Cards{8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(worst_of("pcie_16", 2) == Link::pix());
  CHECK(worst_of("pcie_16", 4) == Link::pxb());
  CHECK(worst_of("pcie_16", 8) == Link::node());
  CHECK(worst_of("pcie_16", 16) == Link::sys());
  const Machine machine = sample_machine("dgx2_16");
  const Group all = plan_groups(machine, 16).groups.at(0);
  CHECK(all.order == all.cards);
}

TEST_CASE("sizes are those that divide the cards, others are refused") {
  CHECK(group_sizes(6) == Cards{1, 2, 3, 6});
  CHECK(group_sizes(7) == Cards{1, 7});
  CHECK_THROWS_WITH(plan_groups(sample_machine("pcie_6"), 4),
                    ContainsSubstring("tp=4: does not divide 6 cards; sizes that do: 1, 2, 3, 6; "
                                      "or choose some of them with --visible"));
  CHECK_THROWS_AS(plan_groups(sample_machine("pcie_6"), 0), Error);
  CHECK_THROWS_WITH(plan_groups(sample_machine("workstation"), 4),
                    ContainsSubstring("tp=4: 2 cards are here, 4 needed; sizes that work: 1, 2"));
  CHECK_THROWS_AS(plan_groups(Machine{}, 1), Error);
  CHECK_THROWS_WITH(plan_groups(random_machine(17, 1), 17),
                    ContainsSubstring("17 cards") && ContainsSubstring("--visible"));
}

#include "common/topology/advice.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "common/core/plural.h"

namespace tp {

namespace {

// At most so many, then how many follow.
std::string some_of(const std::vector<std::string>& all) {
  constexpr std::size_t kMost = 6;
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kMost));
  std::string text = fmt::format("{}", fmt::join(all.begin(), end, ", "));
  if (all.size() > kMost) text += fmt::format(" and {} more", all.size() - kMost);
  return text;
}

std::string name_of(const Machine& machine, std::size_t card) {
  return fmt::format("GPU{}", machine.cards[card].number);
}

void for_each_pair(const std::vector<std::size_t>& cards,
                   const std::function<void(std::size_t, std::size_t)>& visit) {
  for (std::size_t a = 0; a < cards.size(); ++a)
    for (std::size_t b = a + 1; b < cards.size(); ++b) visit(cards[a], cards[b]);
}

std::vector<std::size_t> all_cards(const Machine& machine) {
  std::vector<std::size_t> all(machine.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

// The pairs without peer access, by what is said of them ("U" too); also those of which nothing is.
struct PeerAccess {
  std::size_t pairs = 0, unknown = 0;
  std::map<std::string, std::vector<std::string>> refused;  // "CNS (...)": "GPU0-GPU1", ...
};
PeerAccess peer_access(const Machine& machine,
                       const std::vector<std::vector<std::size_t>>& groups) {
  PeerAccess access;
  for (const auto& cards : groups)
    for_each_pair(cards, [&](std::size_t i, std::size_t j) {
      ++access.pairs;
      const std::optional<P2pStatus> status = machine.p2p(i, j);
      if (!status)
        ++access.unknown;
      else if (*status != P2pStatus::ok)
        access.refused[describe(*status)].push_back(name_of(machine, i) + "-" +
                                                    name_of(machine, j));
    });
  return access;
}

// The groups for which `applies`, as text; empty if there are none.
std::string groups_where(const Machine& machine,
                         const std::vector<Group>& groups,
                         const std::function<bool(const Group&)>& applies) {
  std::vector<Group> found;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(found), applies);
  return sets_of(machine, found);
}

bool has_nvlink(const Group& group) {
  return !group.links.empty() && group.links.back().is_nvlink();
}

// Different known places of a group's cards.
std::set<std::string> places_of(const Machine& machine, const Group& group) {
  std::set<std::string> places;
  for (const std::size_t card : group.cards)
    if (!machine.cards[card].place().empty()) places.insert(machine.cards[card].place());
  return places;
}

// Different known models of a group's cards.
std::set<std::string> models_of(const Machine& machine, const Group& group) {
  std::set<std::string> models;
  for (const std::size_t card : group.cards)
    if (!machine.cards[card].name.empty()) models.insert(machine.cards[card].name);
  return models;
}

// The best partition of a group into smaller ones.
GroupPlan parts_of(const Machine& machine, const Group& group, std::size_t tp) {
  GroupPlan parts = plan_groups(machine.select(group.cards), tp);
  std::vector<Group*> all{&parts.best};
  for (Group& part : parts.groups) all.push_back(&part);
  for (Group* part : all)
    for (std::vector<std::size_t>* cards : {&part->cards, &part->order})
      for (std::size_t& card : *cards) card = group.cards[card];
  return parts;
}

}  // namespace

std::string set_of(const Machine& machine, const std::vector<std::size_t>& cards) {
  std::vector<int> numbers;
  for (const std::size_t card : cards) numbers.push_back(machine.cards.at(card).number);
  return fmt::format("{{{}}}", fmt::join(numbers, ","));
}

std::string sets_of(const Machine& machine, const std::vector<Group>& groups) {
  std::string text;
  for (const Group& group : groups)
    text += (text.empty() ? "" : " ") + set_of(machine, group.order);
  return text;
}

std::string environment_of(const Machine& machine, const Group& group) {
  const std::string set = set_of(machine, group.order);
  return fmt::format("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={}",
                     set.substr(1, set.size() - 2));
}

std::vector<Warning> warnings_of(const Machine& machine, const std::vector<Group>& groups) {
  std::vector<Warning> warnings;
  const auto warn = [&](const char* kind, const std::string& subject, const std::string& text) {
    if (!subject.empty()) warnings.push_back({kind, subject + ": " + text});
  };
  warn("sys",
       groups_where(machine, groups, [](const Group& g) { return g.worst() == Link::sys(); }),
       "worst link SYS: traffic crosses the interconnect between CPU sockets");
  warn("leaves_nvlink",
       groups_where(machine, groups,
                    [](const Group& g) { return has_nvlink(g) && !g.worst()->is_nvlink(); }),
       "the group leaves NVLink: some of its pairs have it, the slowest pair has not, and every "
       "all-reduce waits for it");
  warn("numa",
       groups_where(machine, groups,
                    [&](const Group& g) { return places_of(machine, g).size() > 1; }),
       "cards at more than one NUMA node: staging in host memory and launching threads may be far "
       "from a card");
  std::vector<std::vector<std::size_t>> cards;
  for (const Group& group : groups) cards.push_back(group.cards);
  const PeerAccess access = peer_access(machine, cards);
  for (const auto& [status, pairs] : access.refused)
    warn(status == describe(P2pStatus::unknown) ? "peer_access_unknown" : "no_peer_access",
         some_of(pairs),
         status == describe(P2pStatus::unknown)
             ? "nvidia-smi does not know of peer access, U (unknown); measure a copy between them"
             : fmt::format("no peer access, {}; traffic is staged through host memory", status));
  if (access.unknown > 0)
    warnings.push_back(
        {"peer_access_unknown",
         fmt::format("peer access of {} is not known: give nvidia-smi topo -p2p r and w",
                     plural(access.unknown, "pair"))});
  warn("models",
       groups_where(machine, groups,
                    [&](const Group& g) { return models_of(machine, g).size() > 1; }),
       "cards of different models: all ranks wait for the slowest, and the one with the least "
       "memory limits the KV cache");
  return warnings;
}

std::vector<StageOffer> stage_offers(const Machine& machine, const Group& group) {
  std::vector<StageOffer> offers;
  if (!group.worst() || group.worst()->is_nvlink()) return offers;
  Link worst = *group.worst();
  const std::size_t count = group.cards.size();
  std::vector<std::size_t> sizes = group_sizes(count);
  std::reverse(sizes.begin(), sizes.end());
  for (const std::size_t tp : sizes) {
    if (tp == count || tp == 1) continue;
    GroupPlan stages = parts_of(machine, group, tp);
    if (*stages.worst() <= worst) continue;
    worst = *stages.worst();
    offers.push_back({count / tp, std::move(stages)});
  }
  if (offers.empty()) offers.push_back({count, parts_of(machine, group, 1)});
  return offers;
}

std::string links_in_words(const Machine& machine) {
  std::map<Link, std::size_t, std::greater<>> counts;
  std::size_t pairs = 0, nvlinks = 0;
  for_each_pair(all_cards(machine), [&](std::size_t i, std::size_t j) {
    ++pairs;
    ++counts[machine.link(i, j)];
    if (machine.link(i, j).is_nvlink()) ++nvlinks;
  });
  if (pairs == 0) return "one card, no pairs";
  std::vector<std::string> kinds;
  for (const auto& [link, count] : counts)
    kinds.push_back(fmt::format("{} {}", count, link.name()));
  return fmt::format("NVLink joins {} of {}: {}", nvlinks, plural(pairs, "pair"),
                     fmt::join(kinds, ", "));
}

std::string peer_access_in_words(const Machine& machine) {
  const PeerAccess access = peer_access(machine, {all_cards(machine)});
  if (access.pairs == 0) return "one card, no pairs";
  if (access.unknown == access.pairs) return "not known, no table of topo -p2p was given";
  const char* const half = machine.p2p_read.empty()    ? " for writing; reading is not known"
                           : machine.p2p_write.empty() ? " for reading; writing is not known"
                                                       : "";
  if (access.refused.empty())
    return fmt::format("OK for all of {}{}", plural(access.pairs, "pair"), half);
  std::vector<std::string> parts;
  for (const auto& [status, pairs] : access.refused)
    parts.push_back(fmt::format("{} for {}", status, some_of(pairs)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace tp

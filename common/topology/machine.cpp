#include "common/topology/machine.h"

#include <algorithm>
#include <set>

namespace tp {

std::string Card::place() const {
  if (!numa.empty()) return numa;
  return cpus.empty() ? "" : "CPUs " + cpus;
}

std::optional<P2pStatus> Machine::p2p(std::size_t i, std::size_t j) const {
  std::optional<P2pStatus> found;
  for (const P2pMatrix* matrix : {&p2p_read, &p2p_write}) {
    if (matrix->empty()) continue;
    for (const P2pStatus status : {(*matrix)[i][j], (*matrix)[j][i]})
      if (!found || *found == P2pStatus::ok ||
          (*found == P2pStatus::unknown && status != P2pStatus::ok))
        found = status;
  }
  return found;
}

std::vector<std::size_t> Machine::nearest_nics(std::size_t card) const {
  const std::vector<Link>& to_nic = cards.at(card).to_nic;
  if (to_nic.empty()) return {};
  const Link best = *std::max_element(to_nic.begin(), to_nic.end());
  std::vector<std::size_t> nearest;
  for (std::size_t n = 0; n < to_nic.size(); ++n)
    if (to_nic[n] == best && best >= Link::phb()) nearest.push_back(n);
  return nearest;
}

std::size_t Machine::places() const {
  std::set<std::string> places;
  for (const Card& card : cards)
    if (!card.place().empty()) places.insert(card.place());
  return places.size();
}

Machine Machine::select(const std::vector<std::size_t>& chosen) const {
  Machine part;
  part.nics = nics;
  part.notes = notes;
  part.warnings = warnings;
  const auto pick = [&](const auto& square) {
    std::remove_cvref_t<decltype(square)> picked;
    for (const std::size_t i : chosen) {
      picked.emplace_back();
      for (const std::size_t j : chosen) picked.back().push_back(square.at(i).at(j));
    }
    return picked;
  };
  for (const std::size_t i : chosen) part.cards.push_back(cards.at(i));
  part.links = pick(links);
  if (!p2p_read.empty()) part.p2p_read = pick(p2p_read);
  if (!p2p_write.empty()) part.p2p_write = pick(p2p_write);
  return part;
}

}  // namespace tp

#include "faults.h"

#include <algorithm>

#include "common/core/error.h"

namespace tp {

std::vector<Fault> topology_faults() {
  return {{"nic_counted_as_gpu", "the first NIC column is taken for one more GPU"},
          {"nvlink_anywhere", "the best link of the machine is taken for the link of every pair"}};
}

Machine misread(const Machine& machine, const std::string& fault) {
  Machine wrong = machine;
  if (fault == "nic_counted_as_gpu") {
    if (machine.nics.empty())
      throw input_error(
          "--fault nic_counted_as_gpu: this machine's matrix has no NIC; use one that has");
    Card nic;
    nic.number = machine.cards.back().number + 1;
    wrong.cards.push_back(nic);
    wrong.links.emplace_back();
    for (std::size_t i = 0; i < machine.size(); ++i) {
      wrong.links[i].push_back(machine.cards[i].to_nic[0]);
      wrong.links.back().push_back(machine.cards[i].to_nic[0]);
    }
    wrong.links.back().push_back(Link::sys());  // with itself: has no meaning
    wrong.p2p_read.clear();
    wrong.p2p_write.clear();
  }
  if (fault == "nvlink_anywhere") {
    Link best = Link::sys();
    bool differ = false;
    for (std::size_t i = 0; i < machine.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        best = std::max(best, machine.link(i, j));
        differ = differ || machine.link(i, j) != machine.link(1, 0);
      }
    if (!differ)
      throw input_error(
          "--fault nvlink_anywhere: all links of this machine are equal; use one where they "
          "differ");
    for (auto& row : wrong.links) std::fill(row.begin(), row.end(), best);
  }
  return wrong;
}

}  // namespace tp

// What to say about a recommendation. [introduced in chapter 10]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/topology/groups.h"
#include "common/topology/machine.h"

namespace tp {

// A group of cards split into stages: tp cards compute each layer together, pp groups follow each
// other. The border between stages lies where the links are worse.
struct StageOffer {
  std::size_t pp = 0;
  GroupPlan stages;  // groups of stages.tp cards
};

struct Warning {
  std::string
      kind;  // "sys", "no_peer_access", "peer_access_unknown", "numa", "leaves_nvlink", "models"
  std::string text;
};

// "{0,1,2,3}" by the numbers of nvidia-smi, in the order given.
std::string set_of(const Machine& machine, const std::vector<std::size_t>& cards);
// "{0,1} {2,3}", each in rank order.
std::string sets_of(const Machine& machine, const std::vector<Group>& groups);

// The environment that gives rank r the r-th card of the group, in rank order:
// "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1". Without the first one CUDA may count in
// another order than the topology does.
std::string environment_of(const Machine& machine, const Group& group);

// What is wrong or unknown with these groups.
std::vector<Warning> warnings_of(const Machine& machine, const std::vector<Group>& groups);

// Ways to split a group whose worst link is no NVLink into stages with better links inside: for
// each smaller tp, largest first, whose worst link is better than that of all before. If there is
// none, single cards.
std::vector<StageOffer> stage_offers(const Machine& machine, const Group& group);

// "NVLink joins 4 of 28 pairs" and which kinds of links the others have.
std::string links_in_words(const Machine& machine);

// "OK for all 28 pairs", or the pairs that are not.
std::string peer_access_in_words(const Machine& machine);

}  // namespace tp

// The cards of one machine and the paths between them. [introduced in chapter 10]
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/topology/link.h"

namespace tp {

// A GPU as nvidia-smi sees it. What no input tells is empty.
struct Card {
  int number = 0;            // of GPU3 it is 3; nvidia-smi counts in the order of the PCI bus
  std::string name;          // "NVIDIA RTX A6000"
  std::string uuid;          // "GPU-7c1e..."
  std::string cpus;          // CPU affinity, as written
  std::string numa;          // NUMA affinity: "0", or "0-1" for a card that is near both
  bool has_mig = false;      // cut into MIG slices
  std::vector<Link> to_nic;  // one per NIC of the machine
  std::optional<int> active_nvlinks, inactive_nvlinks;

  // Where the card is: its NUMA affinity; without one the CPUs that are near it.
  std::string place() const;
};

struct Nic {
  std::string column;  // "NIC0", or "mlx5_0" where older drivers wrote so
  std::string device;  // "mlx5_0" from the legend; empty if there is none
};

// Square, one row and column per card; empty if no input tells.
using P2pMatrix = std::vector<std::vector<P2pStatus>>;

struct Machine {
  std::vector<Card> cards;
  std::vector<Nic> nics;
  std::vector<std::vector<Link>> links;  // links[i][j] of cards i and j; links[i][i] has no meaning
  P2pMatrix p2p_read, p2p_write;
  std::vector<std::string> notes;     // what the reader of the input should know about it
  std::vector<std::string> warnings;  // what is probably not meant so

  std::size_t size() const { return cards.size(); }
  Link link(std::size_t i, std::size_t j) const { return links[i][j]; }

  // The worst that is known of the two directions, for reading and writing; nothing if no input
  // tells.
  std::optional<P2pStatus> p2p(std::size_t i, std::size_t j) const;

  // The NICs with this card's best link, if that is PHB or better.
  std::vector<std::size_t> nearest_nics(std::size_t card) const;

  // How many different places the cards are known to be at.
  std::size_t places() const;

  // The same machine with only these cards, in this order.
  // Errors: std::out_of_range if there is no such card.
  Machine select(const std::vector<std::size_t>& chosen) const;
};

}  // namespace tp

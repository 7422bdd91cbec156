// From the text that nvidia-smi printed to a machine. [introduced in chapter 10]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/topology/machine.h"

namespace tp {

// One text and what it is called in messages: a file name, "standard input".
struct TopologyText {
  enum class Role : std::uint8_t {
    any,  // several tables; of two P2P tables without a command above them the first is for reading
    p2p_read,   // `nvidia-smi topo -p2p r`
    p2p_write,  // `nvidia-smi topo -p2p w`
    nvlink,     // `nvidia-smi nvlink -s` or `nvidia-smi -L`
  };
  std::string name;
  std::string text;
  Role role = Role::any;
};

// Reads `topo -m` (needed), `topo -p2p`, `nvlink -s` and `-L` from one or several texts.
// Errors: tp::Error (input), all problems at once, each as NAME:LINE:COLUMN: what is wrong and what
//         would be right. Columns count bytes from 1.
Machine read_machine(const std::vector<TopologyText>& texts);

}  // namespace tp

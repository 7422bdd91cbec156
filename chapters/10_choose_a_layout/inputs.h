// Where the topology comes from: files, standard input, or nvidia-smi itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/topology/machine.h"

namespace tp {

struct TopologyOptions {
  std::string topo, p2p_read, p2p_write, nvlink;  // files; "-" is standard input
  std::vector<std::string> visible;               // at most one list, as in CUDA_VISIBLE_DEVICES
};

std::vector<ExtraOption> topology_flags(TopologyOptions& topology);

// Reads the files that the options name; without any runs nvidia-smi. Keeps the cards of --visible,
// in its order; where nvidia-smi was run, those of CUDA_VISIBLE_DEVICES.
// Errors: tp::Error (input) for files that cannot be read or understood, for a list of devices that
//         is wrong or has too few for --tp, and for cards that are cut into MIG slices; tp::Error
//         (device) if nvidia-smi is needed and cannot be run.
Machine read_input(const Options& options, const TopologyOptions& topology);

// A machine that comes with this chapter: "dgx_h100".
// Errors: tp::Error (input) if its file is not there.
Machine read_sample(const std::string& name);

}  // namespace tp

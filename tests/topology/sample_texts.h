// The texts that the tests read: files of the chapter and of tests/topology/data.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/topology/read_machine.h"

namespace tp {

inline std::string read_sample(const std::string& name) {
  const std::filesystem::path root = TP_SOURCE_DIR;
  for (const char* folder : {"chapters/10_choose_a_layout/samples", "tests/topology/data"}) {
    std::ifstream file(root / folder / (name + ".txt"), std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  throw std::runtime_error(name + ": no such sample");
}

// Every sample that holds the matrix of a machine.
inline std::vector<std::string> machine_samples() {
  return {"dgx_h100",       "a6000_pairs", "workstation",     "dgx1_v100",   "pcie_switches",
          "a100_four",      "pcie_3",      "a100_nv12_pairs", "pcie_6",      "pcie_7",
          "dgx2_16",        "pcie_16",     "one_gpu",         "no_affinity", "mig",
          "a6000_terminal", "dgx_h100_bom"};
}

inline Machine machine_from(const std::string& text) {
  return read_machine({{"file", text, TopologyText::Role::any}});
}

inline Machine sample_machine(const std::string& name) {
  return machine_from(read_sample(name));
}

// The text with the first `from` replaced.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the text: " + from);
  return text.replace(at, from.size(), to);
}

}  // namespace tp

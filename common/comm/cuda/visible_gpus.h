// Which GPUs this machine shows to the program. [introduced in chapter 01]
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/topology/device_list.h"

namespace tp::cuda {

struct Gpu {
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:1B:00.0"
};

struct VisibleGpus {
  std::vector<Gpu> gpus;  // number i of CUDA is gpus[i]
  std::string why_none;   // what CUDA says if there are none
  bool emulated = false;  // by tests/emulated_cuda
  PresentCards present;   // all that the driver knows; none if it does not tell
  std::optional<std::string> visible_devices;  // the value of CUDA_VISIBLE_DEVICES
  std::optional<std::string> device_order;     // the value of CUDA_DEVICE_ORDER
};

// Errors: none if there is no GPU or no driver; tp::Error if CUDA fails otherwise.
VisibleGpus look_for_gpus();

// The cards that the driver lists in a folder, in the order of their PCI bus.
PresentCards cards_in(const std::filesystem::path& folder);

}  // namespace tp::cuda

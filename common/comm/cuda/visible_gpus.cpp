#include "common/comm/cuda/visible_gpus.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include <cuda_runtime_api.h>

#include "common/device/cuda/check.h"

namespace tp::cuda {

namespace {

std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

// The UUID in a file of lines such as "GPU UUID:        GPU-7c1e...".
std::string uuid_in(const std::filesystem::path& file) {
  constexpr std::string_view kKey = "GPU UUID:";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", kKey.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

VisibleGpus look_for_gpus() {
  VisibleGpus found;
  found.visible_devices = environment("CUDA_VISIBLE_DEVICES");
  found.device_order = environment("CUDA_DEVICE_ORDER");
  found.present = cards_in("/proc/driver/nvidia/gpus");
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
    cudaGetLastError();  // it is an answer, not an error of the next call
    int driver = 0;      // of no version, if there is none
    const bool no_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    found.why_none = no_driver ? "there is no CUDA driver" : cudaGetErrorString(result);
    return found;
  }
  check(result, "cudaGetDeviceCount");
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    std::array<char, 32> bus_id{};
    check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu),
          "cudaDeviceGetPCIBusId");
    found.gpus.push_back({properties.name, bus_id.data()});
  }
  found.emulated = count > 0 && found.gpus[0].name == "Emulated GPU";
  return found;
}

PresentCards cards_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> cards;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    cards.push_back(entry.path());
  std::sort(cards.begin(), cards.end());
  PresentCards present;
  present.count = cards.size();
  for (const auto& card : cards) present.uuids.push_back(uuid_in(card / "information"));
  const auto unknown = [](const std::string& uuid) { return !uuid.starts_with("GPU-"); };
  if (std::any_of(present.uuids.begin(), present.uuids.end(), unknown)) present.uuids.clear();
  return present;
}

}  // namespace tp::cuda

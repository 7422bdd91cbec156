// The text of --nccl-info.
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/comm/cuda/nccl.h"
#include "common/comm/cuda/nccl_variables.h"
#include "common/comm/cuda/peer_access.h"
#include "common/comm/cuda/visible_gpus.h"
#include "common/core/error.h"
#include "common/core/platform.h"

namespace tp {

namespace {

// All environment variables, as names and values.
std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

std::string describe_gpus(const cuda::VisibleGpus& visible) {
  if (visible.gpus.empty()) return fmt::format("No GPU visible ({})\n", visible.why_none);
  std::string text = "GPUs:\n";
  const auto count = static_cast<int>(visible.gpus.size());
  for (int to = 0; to < count; ++to) {
    const cuda::Gpu& gpu = visible.gpus[static_cast<std::size_t>(to)];
    std::vector<int> readable;
    for (int from = 0; from < count; ++from)
      if (from != to && cuda::can_read({from, to})) readable.push_back(from);
    text +=
        fmt::format("  {}  {}, PCI {}, can read memory of GPUs: {}\n", to, gpu.name, gpu.pci_bus_id,
                    readable.empty() ? "none" : fmt::format("{}", fmt::join(readable, ", ")));
  }
  return text;
}

}  // namespace

std::string nccl_info() {
  const auto version = cuda::nccl_version();
  if (!version)
    throw Error(ErrorKind::device,
                "--nccl-info: this program was built without NCCL; build where nccl.h and libnccl "
                "are installed");
  const cuda::VisibleGpus visible = cuda::look_for_gpus();
  return fmt::format("NCCL {}{}\n\n{}\n{}", *version,
                     visible.emulated ? " (emulated, as are the GPUs)" : "", describe_gpus(visible),
                     cuda::describe_nccl_environment(environment()));
}

}  // namespace tp

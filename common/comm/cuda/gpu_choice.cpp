#include "common/comm/cuda/gpu_choice.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/comm/cuda/peer_self_test.h"
#include "common/core/error.h"
#include "common/core/plural.h"
#include "common/device/cuda/reduce.h"

namespace tp::cuda {

namespace {

std::string asked_for(const Options& options) {
  return options.device == "cuda" ? "--device cuda" : "--comm " + options.comm;
}

std::string list_text(const VisibleGpus& visible) {
  return visible.visible_devices ? "CUDA_VISIBLE_DEVICES=" + *visible.visible_devices
                                 : "CUDA_VISIBLE_DEVICES is not set";
}

// CUDA reads a list without a word, whatever is in it. What cannot be meant is refused here.
void check_list(const VisibleGpus& visible) {
  if (!visible.visible_devices) return;
  const std::string& list = *visible.visible_devices;
  const bool one_slice = list.starts_with("MIG-") && list.find(',') == std::string::npos;
  if (one_slice) return;  // nothing to refuse; whether a GPU is visible, CUDA has said
  PresentCards cards = visible.present;
  if (cards.count == 0) {
    // The driver does not tell which cards there are. Then CUDA alone knows where the list ends.
    if (list.find("GPU-") != std::string::npos) return;
    cards.count = 1 << 16;
  }
  read_device_list(list, cards);  // that no card of it is there is not the list's fault
}

// "NVIDIA H200", or all names if they differ.
std::string names_of(const VisibleGpus& visible, const std::vector<int>& gpus) {
  if (visible.emulated) return "emulated, no real GPU";
  std::set<std::string> names;
  for (const int gpu : gpus) names.insert(visible.gpus[static_cast<std::size_t>(gpu)].name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string text_of_pair(GpuPair pair) {
  return fmt::format("GPU {} cannot read memory of GPU {}", pair.to, pair.from);
}

Error wrong_data(const Options& options, const PeerFindings& findings) {
  return Error(ErrorKind::rank, fmt::format("--comm {}: {}\n{}", options.comm,
                                            fmt::join(findings.wrong_data, "\n"), peer_advice()));
}

// How the ranks are connected, and the words for it.
struct Connection {
  std::string comm;
  std::string text;
};

Connection connect(const Options& options,
                   const Circumstances& circumstances,
                   const std::vector<int>& gpus) {
  const bool one_each = circumstances.visible.gpus.size() >= static_cast<std::size_t>(options.tp);
  const bool automatic = options.comm == "auto";
  const bool nccl =
      options.comm == "nccl" || (automatic && circumstances.has_nccl && one_each && options.tp > 1);
  PeerFindings findings;
  if (gpus.size() > 1 && !(nccl && circumstances.nccl_without_peer_access))
    findings = circumstances.try_peers(gpus);
  if (!findings.wrong_data.empty()) {
    if (!automatic) throw wrong_data(options, findings);
    return {"peer-staged", fmt::format("by copies through the host, because GPUs get wrong data "
                                       "from each other ({})",
                                       findings.wrong_data[0])};
  }
  if (nccl) return {"nccl", "by NCCL"};
  if (options.tp > kMaxReduceRanks)
    throw input_error(
        fmt::format("--tp {}: at most {} ranks can share GPUs; give each its own GPU, "
                    "with --comm nccl, or use a lower --tp",
                    options.tp, kMaxReduceRanks));
  if (!findings.without_access.empty())
    return {"peer-staged", fmt::format("by copies through the host, because {}",
                                       text_of_pair(findings.without_access[0]))};
  return {"peer", options.tp == 1 ? "" : "by peer copies"};
}

}  // namespace

int gpu_of_rank(int rank, std::size_t gpus) {
  return static_cast<int>(static_cast<std::size_t>(rank) % gpus);
}

bool wants_gpus(const Options& options, const VisibleGpus& visible) {
  if (options.device != "auto") return options.device == "cuda";
  if (options.comm == "nccl" || options.comm == "peer") return true;
  return options.comm == "auto" && !visible.gpus.empty() && !visible.emulated;
}

GpuChoice choose_gpus(const Options& options, const Circumstances& circumstances) {
  const VisibleGpus& visible = circumstances.visible;
  check_list(visible);
  if (visible.gpus.empty())
    throw Error(ErrorKind::device,
                fmt::format("{}: no GPU visible ({}; {}); use --device cpu", asked_for(options),
                            visible.why_none, list_text(visible)));
  if (options.comm == "threads")
    throw input_error(
        "--comm threads: connects ranks on the CPU; with --device cuda use --comm auto, nccl or "
        "peer");
  const auto count = static_cast<std::int64_t>(visible.gpus.size());
  if (options.comm == "nccl" && !circumstances.has_nccl)
    throw Error(ErrorKind::device,
                "--comm nccl: this program was built without NCCL; use --comm peer, or build where "
                "nccl.h and libnccl are installed");
  if (options.comm == "nccl" && count < options.tp)
    throw input_error(fmt::format(
        "--comm nccl: {} need {}, {} visible ({}); use --comm peer, where ranks share GPUs, or a "
        "lower --tp",
        plural(options.tp, "rank"), plural(options.tp, "GPU"), count, list_text(visible)));

  std::vector<int> gpus;
  for (int gpu = 0; gpu < std::min(count, options.tp); ++gpu) gpus.push_back(gpu);
  const Connection connection = connect(options, circumstances, gpus);
  std::vector<std::string> names;
  for (const Gpu& gpu : visible.gpus) names.push_back(gpu.name);
  const std::string on =
      fmt::format("{} on {}", plural(options.tp, "rank"), plural(gpus.size(), "GPU"));
  return {connection.comm,
          fmt::format("cuda ({}), {}{}{}", names_of(visible, gpus), on,
                      connection.text.empty() ? "" : " ", connection.text),
          device_order_warning(names, visible.device_order)};
}

}  // namespace tp::cuda

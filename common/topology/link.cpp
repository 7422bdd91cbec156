#include "common/topology/link.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace tp {

namespace {

constexpr std::array<std::string_view, 5> kPcieNames{"SYS", "NODE", "PHB", "PXB", "PIX"};

struct StatusName {
  P2pStatus status;
  std::string_view word, meaning;
};
constexpr std::array<StatusName, 7> kStatusNames{{
    {P2pStatus::ok, "OK", "status ok"},
    {P2pStatus::chipset_not_supported, "CNS", "chipset not supported"},
    {P2pStatus::gpu_not_supported, "GNS", "GPU not supported"},
    {P2pStatus::topology_not_supported, "TNS", "topology not supported"},
    {P2pStatus::disabled_by_regkey, "DR", "disabled by a driver setting"},
    {P2pStatus::not_supported, "NS", "not supported"},
    {P2pStatus::unknown, "U", "unknown"},
}};

}  // namespace

std::optional<Link> Link::parse(std::string_view word) {
  if (word == "SOC") return sys();
  const auto* const pcie = std::find(kPcieNames.begin(), kPcieNames.end(), word);
  if (pcie != kPcieNames.end()) return Link(static_cast<int>(pcie - kPcieNames.begin()));
  if (!word.starts_with("NV")) return std::nullopt;
  int count = 0;
  const char* end = word.data() + word.size();
  const auto [next, error] = std::from_chars(word.data() + 2, end, count);
  if (error != std::errc() || next != end || count < 1 || count > kMaxNvlinks) return std::nullopt;
  return nvlink(count);
}

std::string Link::name() const {
  if (is_nvlink()) return fmt::format("NV{}", nvlinks());
  return std::string(kPcieNames.at(static_cast<std::size_t>(order_)));
}

std::optional<P2pStatus> parse_p2p_status(std::string_view word) {
  for (const StatusName& known : kStatusNames)
    if (known.word == word) return known.status;
  return std::nullopt;
}

std::string describe(P2pStatus status) {
  for (const StatusName& known : kStatusNames)
    if (known.status == status) return fmt::format("{} ({})", known.word, known.meaning);
  return "U (unknown)";
}

}  // namespace tp

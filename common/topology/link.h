// How two cards are connected, and whether one may reach into the other. [introduced in chapter 10]
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tp {

// The path between two devices as `nvidia-smi topo -m` names it. Greater is better:
// SYS < NODE < PHB < PXB < PIX < NV1 < NV2 < ... This orders candidates; it is no bandwidth.
// Source: the legend of `nvidia-smi topo -m`; article 002, section A6000 的双卡 NVLink.
class Link {
 public:
  static constexpr int kMaxNvlinks = 99;

  static constexpr Link sys() { return Link(0); }   // across the interconnect of CPU sockets
  static constexpr Link node() { return Link(1); }  // across host bridges of one NUMA node
  static constexpr Link phb() { return Link(2); }   // across one PCIe host bridge
  static constexpr Link pxb() { return Link(3); }   // across several PCIe switches
  static constexpr Link pix() { return Link(4); }   // across one PCIe switch
  static constexpr Link nvlink(int count) { return Link(kPcieKinds - 1 + count); }

  // "NV18", "PIX", ...; also SOC, the old name of SYS. Nothing for any other word.
  static std::optional<Link> parse(std::string_view word);

  constexpr bool is_nvlink() const { return order_ >= kPcieKinds; }
  // Of how many NVLinks the path is made; 0 if of none.
  constexpr int nvlinks() const { return is_nvlink() ? order_ - kPcieKinds + 1 : 0; }
  std::string name() const;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the default for a comparison with 0
  constexpr auto operator<=>(const Link&) const = default;

 private:
  static constexpr int kPcieKinds = 5;
  explicit constexpr Link(int order) : order_(static_cast<std::int16_t>(order)) {}
  std::int16_t order_;
};

// What `nvidia-smi topo -p2p` says of one card's access to another one's memory.
enum class P2pStatus : std::uint8_t {
  ok,
  chipset_not_supported,
  gpu_not_supported,
  topology_not_supported,
  disabled_by_regkey,
  not_supported,
  unknown,
};

// "OK", "CNS", "GNS", "TNS", "DR", "NS", "U". Nothing for any other word.
std::optional<P2pStatus> parse_p2p_status(std::string_view word);
// "CNS (chipset not supported)".
std::string describe(P2pStatus status);

}  // namespace tp

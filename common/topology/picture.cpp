#include "common/topology/picture.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/core/svg.h"

namespace tp {

namespace {

// From fast to slow; what lies between two cards decides, not how many NVLinks.
struct Kind {
  Link at_least;
  std::string_view meaning, picture, terminal;
};
// Colours by Okabe and Ito, half transparent so that the words can be read on light and dark pages.
constexpr std::array<Kind, 5> kKinds{{
    {Link::nvlink(1), "NV#: NVLink", "rgba(0, 158, 115, 0.55)", "32"},
    {Link::pxb(), "PIX, PXB: PCIe switches", "rgba(86, 180, 233, 0.55)", "36"},
    {Link::phb(), "PHB: host bridge", "rgba(240, 228, 66, 0.55)", "34"},
    {Link::node(), "NODE: several host bridges", "rgba(230, 159, 0, 0.55)", "33"},
    {Link::sys(), "SYS: between CPU sockets", "rgba(213, 94, 0, 0.55)", "31"},
}};

const Kind& kind_of(Link link) {
  for (const Kind& kind : kKinds)
    if (link >= kind.at_least) return kind;
  return kKinds.back();
}

}  // namespace

std::string picture_color(Link link) {
  return std::string(kind_of(link).picture);
}

std::string terminal_color(Link link) {
  return std::string(kind_of(link).terminal);
}

std::string draw_links(const Machine& machine) {
  constexpr double kCell = 48, kRow = 26, kLeft = 60, kTop = 24, kLegendRow = 20;
  const auto count = static_cast<double>(machine.size());
  const double bottom = kTop + count * kRow + 16;
  Svg svg(std::max(kLeft + count * kCell, 300.0),
          bottom + kLegendRow * static_cast<double>(kKinds.size()), "links between the cards");
  const auto name = [&](std::size_t i) { return fmt::format("GPU{}", machine.cards[i].number); };
  for (std::size_t i = 0; i < machine.size(); ++i) {
    const auto at = static_cast<double>(i);
    svg.text({kLeft + (at + 0.5) * kCell, kTop - 8}, name(i), Svg::Anchor::middle);
    svg.text({kLeft - 8, kTop + (at + 0.68) * kRow}, name(i), Svg::Anchor::end);
    for (std::size_t j = 0; j < machine.size(); ++j) {
      const auto column = static_cast<double>(j);
      const Svg::Box box{kLeft + column * kCell + 1, kTop + at * kRow + 1, kCell - 2, kRow - 2};
      if (i == j) {
        svg.rect(box, Svg::faint_color(), name(i));
        continue;
      }
      const Link link = machine.link(i, j);
      svg.rect(box, picture_color(link),
               fmt::format("{} to {}: {}", name(i), name(j), link.name()));
      svg.text({box.x + box.width / 2, kTop + (at + 0.68) * kRow}, link.name(),
               Svg::Anchor::middle);
    }
  }
  for (std::size_t k = 0; k < kKinds.size(); ++k) {
    const double y = bottom + kLegendRow * static_cast<double>(k);
    svg.rect({kLeft, y, 14, 14}, kKinds[k].picture, kKinds[k].meaning);
    svg.text({kLeft + 22, y + 12}, kKinds[k].meaning);
  }
  return svg.to_string();
}

}  // namespace tp

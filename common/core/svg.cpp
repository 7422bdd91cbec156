#include "common/core/svg.h"

#include <array>

#include <fmt/format.h>

#include "common/core/markup.h"

namespace tp {

namespace {

std::string_view name_of(Svg::Anchor anchor) {
  switch (anchor) {
    case Svg::Anchor::start:
      return "start";
    case Svg::Anchor::middle:
      return "middle";
    case Svg::Anchor::end:
      return "end";
  }
  return "start";
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title)
    : markup_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.2f} {1:.2f}\" "
          "width=\"{0:.2f}\" height=\"{1:.2f}\" role=\"img\" font-family=\"sans-serif\" "
          "font-size=\"12\" fill=\"currentColor\">\n<title>{2}</title>\n",
          width,
          height,
          escaped_markup(title))) {}

void Svg::rect(const Box& box, std::string_view fill, std::string_view hint) {
  markup_ += fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}"
      "</title></rect>\n",
      box.x, box.y, box.width, box.height, escaped_markup(fill), escaped_markup(hint));
}

void Svg::line(Point from, Point to) {
  markup_ += fmt::format(
      "<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"currentColor\"/>\n",
      from.x, from.y, to.x, to.y);
}

void Svg::text(Point at, std::string_view text, Anchor anchor) {
  markup_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", at.x,
                         at.y, name_of(anchor), escaped_markup(text));
}

std::string Svg::to_string() const {
  return markup_ + "</svg>\n";
}

std::string_view Svg::series_color(std::size_t index) {
  static constexpr std::array<std::string_view, 8> kColors{
      "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#888888"};
  return kColors.at(index % kColors.size());
}

std::string_view Svg::faint_color() {
  return "rgba(128, 128, 128, 0.25)";
}

}  // namespace tp

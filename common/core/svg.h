// Pictures made of rectangles, lines and text. [introduced in chapter 08]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tp {

// A picture as SVG markup, to stand inside an HTML page. It needs nothing from outside: no script,
// no file, no font. Lines and text have the colour of the page's text, so that they can be read on
// a light page and on a dark one. Coordinates are in units of the picture, from the upper left.
class Svg {
 public:
  struct Box {
    double x = 0, y = 0, width = 0, height = 0;
  };
  struct Point {
    double x = 0, y = 0;
  };
  enum class Anchor : std::uint8_t { start, middle, end };

  // `title` says what the picture shows, to those who cannot see it.
  Svg(double width, double height, std::string_view title);

  // `fill` is a colour, such as series_color(0). `hint` is shown when the pointer rests on it.
  void rect(const Box& box, std::string_view fill, std::string_view hint = {});
  void line(Point from, Point to);
  void text(Point at, std::string_view text, Anchor anchor = Anchor::start);

  std::string to_string() const;

  // Colours that differ also for the colour-blind, on light and on dark pages; repeats after 8.
  // Source: Okabe and Ito 2008, "Color universal design".
  static std::string_view series_color(std::size_t index);
  // For what is there but does not count, such as free room.
  static std::string_view faint_color();

 private:
  std::string markup_;
};

}  // namespace tp

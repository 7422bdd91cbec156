#include "common/topology/picture.h"

#include <set>
#include <string>

#include "tests/catch.h"
#include "tests/topology/sample_texts.h"

using namespace tp;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

TEST_CASE("every pair of cards has its word and its colour in the picture") {
  const std::string svg = draw_links(sample_machine("a6000_pairs"));
  CHECK(count_of(svg, ">NV4</text>") == 8);  // four pairs, in both directions
  CHECK(count_of(svg, ">NODE</text>") == 16);
  CHECK(count_of(svg, ">SYS</text>") == 32);
  CHECK(count_of(svg, ">GPU7</text>") == 2);
  CHECK_THAT(svg, ContainsSubstring("<title>GPU0 to GPU1: NV4</title>"));
  CHECK(count_of(svg, picture_color(Link::nvlink(4))) == 8 + 1);  // and in the legend
  CHECK(count_of(svg, picture_color(Link::sys())) == 32 + 1);
  CHECK(count_of(draw_links(sample_machine("one_gpu")), "<rect") == 1 + 5);
}

TEST_CASE("links of different kinds have different colours") {
  std::set<std::string> terminal, picture;
  for (const Link link : {Link::sys(), Link::node(), Link::phb(), Link::pix(), Link::nvlink(1)}) {
    terminal.insert(terminal_color(link));
    picture.insert(picture_color(link));
  }
  CHECK(terminal.size() == 5);
  CHECK(picture.size() == 5);
  CHECK(terminal_color(Link::nvlink(18)) == terminal_color(Link::nvlink(1)));
  CHECK(terminal_color(Link::pxb()) == terminal_color(Link::pix()));
}

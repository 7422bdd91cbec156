#include "common/core/svg.h"

#include <set>

#include "common/core/markup.h"
#include "tests/catch.h"

using namespace tp;

TEST_CASE("markup in a text is replaced") {
  CHECK(escaped_markup("a <b> & \"c\" 'd'") == "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  CHECK(escaped_markup("é 张量\n\tx") == "é 张量\n\tx");
  CHECK(escaped_markup(std::string("a\0b\x1b[31mc\x7f", 10)) == "a b [31mc ");
}

TEST_CASE("a picture holds its rectangles lines and texts and nothing active") {
  Svg picture(200, 100.5, "bars <1>");
  picture.rect({10, 20, 30.25, 40}, Svg::series_color(0), "weights & KV");
  picture.line({0, 60}, {200, 60});
  picture.text({5, 95}, "<script>", Svg::Anchor::end);
  const std::string svg = picture.to_string();
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK_THAT(svg, ContainsSubstring("viewBox=\"0 0 200.00 100.50\""));
  CHECK_THAT(svg, ContainsSubstring("<title>bars &lt;1&gt;</title>"));
  CHECK_THAT(svg, ContainsSubstring("width=\"30.25\" height=\"40.00\" fill=\"#0072b2\""));
  CHECK_THAT(svg, ContainsSubstring("<title>weights &amp; KV</title>"));
  CHECK_THAT(svg, ContainsSubstring("x2=\"200.00\" y2=\"60.00\" stroke=\"currentColor\""));
  CHECK_THAT(svg, ContainsSubstring("text-anchor=\"end\">&lt;script&gt;</text>"));
  CHECK_THAT(svg, !ContainsSubstring("<script"));
}

TEST_CASE("the colours of neighbours differ") {
  std::set<std::string_view> colors;
  for (std::size_t i = 0; i < 8; ++i) colors.insert(Svg::series_color(i));
  CHECK(colors.size() == 8);
  CHECK(Svg::series_color(8) == Svg::series_color(0));
}

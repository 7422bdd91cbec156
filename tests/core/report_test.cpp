#include "common/core/report.h"

#include <cstdio>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/core/captured_output.h"
#include "tests/core/terminal.h"

using namespace tp;
using Json = nlohmann::json;

namespace {

Comparison comparison(const std::string& name, double difference, bool passed) {
  return {.name = name,
          .shape = "[2, 3]",
          .max_difference = difference,
          .place = "[1, 2]: 5.5, reference 6",
          .tolerance = {0.25, "test"},
          .passed = passed};
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("a report passes when all checks do") {
  const CapturedOutput out(stdout);
  Report report;
  report.check(comparison("y", 0.125, true));
  report.expect("all_reduce calls", 1, 1);
  CHECK(report.finish() == 0);
  CHECK(last_line(out.text()) == "PASS");
  CHECK(Json::parse(report.to_json()).at("result") == "PASS");
}

TEST_CASE("one failed check among several makes a report fail") {
  const CapturedOutput out(stdout);
  Report report;
  report.check(comparison("first", 0.5, false));
  report.check(comparison("last", 0.125, true));
  report.expect("bytes", 16, 16);
  CHECK(report.finish() == 1);
  CHECK(last_line(out.text()) == "FAIL (1 of 3 checks)");
  CHECK_THAT(out.text(), ContainsSubstring("DIFFERS at [1, 2]: 5.5, reference 6"));
  CHECK(Json::parse(report.to_json()).at("result") == "FAIL");
}

TEST_CASE("cells are coloured on a terminal and nowhere else") {
  const Table table{
      "links", {"", "GPU0"}, {{"GPU1", "NV4"}, {"GPU2", "PHB"}}, {{"", "32"}, {"", ""}}};
  const std::string plain = "        GPU0\n  GPU1  NV4\n  GPU2  PHB\n";
  const auto printed_on_terminal = [&](const char* name, const char* no_color) {
    const SetVariable term("TERM", name), refused("NO_COLOR", no_color);
    const Terminal terminal;
    Report().table(table);
    return terminal.text();
  };
  CHECK(printed_on_terminal("xterm", nullptr) ==
        "        GPU0\n  GPU1  \x1b[32mNV4\x1b[0m\n  GPU2  PHB\n");
  CHECK(printed_on_terminal("xterm", "1") == plain);
  CHECK(printed_on_terminal("xterm", "").find('\x1b') != std::string::npos);  // empty is not set
  CHECK(printed_on_terminal("dumb", nullptr) == plain);
  CHECK(printed_on_terminal(nullptr, nullptr) == plain);
  const SetVariable term("TERM", "xterm"), refused("NO_COLOR", nullptr);
  const CapturedOutput file(stdout);
  Report().table(table);
  CHECK(file.text() == plain);
}

TEST_CASE("an expectation that does not hold shows both values") {
  const CapturedOutput out(stdout);
  Report report;
  report.expect("all_reduce calls", 3, 1);
  report.expect("text", "found", "wanted");
  CHECK(report.finish() == 1);
  CHECK_THAT(out.text(), ContainsSubstring("all_reduce calls: 3  WRONG, expected 1"));
  CHECK(last_line(out.text()) == "FAIL (2 of 2 checks)");
  const Json checks = Json::parse(report.to_json()).at("checks");
  CHECK(checks.at(0).at("found") == "3");
  CHECK(checks.at(0).at("expected") == "1");
  CHECK(checks.at(0).at("passed") == false);
}

TEST_CASE("a report without checks compared nothing and says so") {
  const CapturedOutput out(stdout);
  Report report;
  CHECK(report.finish() == 0);
  CHECK(last_line(out.text()) == "DONE (nothing compared)");
  CHECK(Json::parse(report.to_json()).at("result") == "DONE");
}

TEST_CASE("the JSON text holds everything and a NaN as text") {
  const CapturedOutput out(stdout);
  Report report;
  report.record("/tp", std::int64_t{4});
  report.record("/prompts/0/text", std::string("quote \" line\n tab\t"));
  report.record("/prompts/0/ids", std::vector<std::int32_t>{1, 2, 3});
  report.record("/prompts/1/text", std::string("broken \xff UTF-8"));
  report.record("/uneven", true);
  report.table({"shards", {"rank", "bytes"}, {{"0", "16"}, {"1", "24"}}});
  report.check(comparison("y", std::numeric_limits<double>::quiet_NaN(), false));
  report.time("step", 12.5);
  const Json json = Json::parse(report.to_json());
  CHECK(json.at("tp") == 4);
  CHECK(json.at("uneven") == true);
  CHECK(json.at("prompts").at(0).at("text") == "quote \" line\n tab\t");
  CHECK(json.at("prompts").at(0).at("ids") == Json({1, 2, 3}));
  CHECK_THAT(json.at("prompts").at(1).at("text").get<std::string>(), ContainsSubstring("broken"));
  CHECK(json.at("tables").at("shards").at(1).at("bytes") == "24");
  CHECK(json.at("checks").at(0).at("max_difference") == "nan");
  CHECK(json.at("checks").at(0).at("tolerance") == 0.25);
  CHECK(json.at("checks").at(0).at("place") == "[1, 2]: 5.5, reference 6");
  CHECK(json.at("times").contains("step"));
}

TEST_CASE("times stand in one marked block before the verdict") {
  const CapturedOutput out(stdout);
  Report report;
  report.time("first", 12.34);
  report.line("a line");
  report.time("second", 45600.0);
  report.expect("x", 1, 1);
  report.finish();
  const std::string text = out.text();
  const std::size_t begin = text.find("-- times"), end = text.find("-- end of times --");
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  CHECK(text.find("12.3 us") > begin);
  CHECK(text.find("45.6 ms") < end);
  CHECK(text.find("a line") < begin);
  CHECK(text.find("PASS") > end);
}

TEST_CASE("numbers of a table stand right and text stands left") {
  const CapturedOutput out(stdout);
  Report report;
  report.table({"shards", {"rank", "name"}, {{"0", "a"}, {"10", "longer"}}});
  CHECK(out.text() == "  rank  name\n     0  a\n    10  longer\n");
}

TEST_CASE("a cell holds several ranks and a range of indices") {
  CHECK(cell_of(std::vector<std::string>{"[2]", "[3]", "[3]", "[2]"}) == "[2], [3] x 2, [2]");
  CHECK(cell_of(Range{8, 16}) == "8-15");
  CHECK(cell_of(Range{3, 4}) == "3");
  CHECK(cell_of(Range{3, 3}) == "none");
}

TEST_CASE("the page holds everything in the order of the output and the pictures besides") {
  const CapturedOutput out(stdout);
  Report report;
  report.line("model <tiny> & more");
  report.section("Shapes");
  report.table({"shards", {"rank", "name"}, {{"0", "<a>"}}});
  report.picture("who holds <what>", "<svg>here</svg>");
  report.stream("one ");
  report.line("text");
  report.check(comparison("y", 0.5, false));
  report.expect("bytes", 16, 16);
  report.time("step", 12.5);
  report.finish();
  const std::string page = report.to_html("Chapter <1>");
  CHECK(page.starts_with("<!DOCTYPE html>\n"));
  CHECK(page.ends_with("</html>\n"));
  std::size_t at = 0;
  for (const char* part :
       {"<title>Chapter &lt;1&gt;</title>", "<pre>model &lt;tiny&gt; &amp; more\n</pre>",
        "<h2>Shapes</h2>", "<td class=\"number\">0</td><td>&lt;a&gt;</td>", "<svg>here</svg>",
        "who holds &lt;what&gt;", "<pre>one text\n</pre>",
        "<tr class=\"failed\"><td>y</td><td>0.5</td><td>&lt;= 0.25</td>"
        "<td>WRONG [1, 2]: 5.5, reference 6</td></tr>",
        "<tr><td>bytes</td><td>16</td><td>16</td><td>ok</td></tr>", "12.5 us",
        "FAIL (1 of 2 checks)"}) {
    CAPTURE(part);
    REQUIRE(page.find(part, at) != std::string::npos);
    at = page.find(part, at);
  }
  CHECK_THAT(out.text(), !ContainsSubstring("svg"));
  CHECK_THAT(page, !ContainsSubstring("<script") && !ContainsSubstring("src="));
}

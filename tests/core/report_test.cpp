#include "common/core/report.h"

#include <cstdio>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/core/captured_output.h"

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

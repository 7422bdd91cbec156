#include "common/core/report.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

namespace tp {

namespace {

// Width on a terminal of UTF-8 text: continuation bytes take no room.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool looks_like_a_number(std::string_view cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-e% ") == std::string_view::npos;
}

// "ok", with the reason of the tolerance unless that is 0; or where the difference is.
std::string verdict_of(const Comparison& c) {
  if (!c.passed) return "DIFFERS at " + c.place;
  return c.tolerance.bound == 0 ? "ok" : fmt::format("ok ({})", c.tolerance.reason);
}

// 0 as "0", everything else with three significant digits.
std::string short_number(double value) {
  return value == 0 ? "0" : fmt::format("{:.3g}", value);
}

}  // namespace

Report::~Report() {
  if (line_is_open_) fmt::print("\n");
}

void Report::section(const std::string& title) {
  fmt::print("\n== {} ==\n", title);
  comparing_ = false;
}

void Report::line(const std::string& text) {
  fmt::print("{}\n", text);
  line_is_open_ = false;
}

void Report::stream(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
  line_is_open_ = true;
}

void Report::table(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.header.size(); ++c) {
    std::size_t width = width_of(table.header[c]);
    for (const auto& row : table.rows) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  const auto print_row = [&](const std::vector<std::string>& cells, bool is_header) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - width_of(cells[c]), ' ');
      const std::string& sample = is_header && !table.rows.empty() ? table.rows[0][c] : cells[c];
      text += "  " + (looks_like_a_number(sample) ? pad + cells[c] : cells[c] + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  print_row(table.header, true);
  for (const auto& row : table.rows) print_row(row, false);
  tables_.push_back(table);
}

void Report::record(const std::string& path, Value value) {
  values_.emplace_back(path, std::move(value));
}

void Report::check(const Comparison& comparison) {
  if (!comparing_)
    fmt::print("  {:<38} {:<12} {:>11} {:>10}  verdict\n", "name", "shape", "largest |d|",
               "tolerance");
  comparing_ = true;
  fmt::print("  {:<38} {:<12} {:>11} {:>10}  {}\n", comparison.name, comparison.shape,
             short_number(comparison.max_difference), short_number(comparison.tolerance.bound),
             verdict_of(comparison));
  add({comparison.name, short_number(comparison.max_difference),
       "<= " + short_number(comparison.tolerance.bound), comparison.passed, comparison});
}

void Report::expect(const std::string& name, std::int64_t found, std::int64_t wanted) {
  expect(name, std::to_string(found), std::to_string(wanted));
}

void Report::expect(const std::string& name, const std::string& found, const std::string& wanted) {
  const bool passed = found == wanted;
  fmt::print("  {}: {}  {}\n", name, found, passed ? "ok" : "WRONG, expected " + wanted);
  comparing_ = false;
  add({name, found, wanted, passed, {}});
}

void Report::add(Check check) {
  checks_.push_back(std::move(check));
}

void Report::time(const std::string& name, double microseconds) {
  time(name, microseconds < 1e4 ? fmt::format("{:.1f} us", microseconds)
                                : fmt::format("{:.1f} ms", microseconds / 1e3));
}

void Report::time(const std::string& name, const std::string& text) {
  times_.push_back({name, text});
}

int Report::finish() {
  if (!times_.empty()) {
    fmt::print("\n-- times: only the lines of this block differ from run to run --\n");
    for (const Time& t : times_) fmt::print("  {:<44} {}\n", t.name, t.text);
    fmt::print("-- end of times --\n");
  }
  const auto failed =
      std::count_if(checks_.begin(), checks_.end(), [](const Check& c) { return !c.passed; });
  if (checks_.empty())
    fmt::print("\nDONE (nothing compared)\n");
  else if (failed == 0)
    fmt::print("\nPASS\n");
  else
    fmt::print("\nFAIL ({} of {} checks)\n", failed, checks_.size());
  return failed == 0 ? 0 : 1;
}

}  // namespace tp

#include "common/core/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace tp {

namespace {

// Width on a terminal of UTF-8 text: continuation bytes take no room.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Colours are for eyes: not for files and pipes, and not for those who do not want them.
bool colors_are_welcome() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(::fileno(stdout)) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
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
  items_.emplace_back(Heading{title});
  comparing_ = false;
}

void Report::line(const std::string& text) {
  fmt::print("{}\n", text);
  add_text(text + "\n");
  line_is_open_ = false;
}

void Report::stream(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
  add_text(text);
  line_is_open_ = true;
}

void Report::add_text(const std::string& text) {
  if (items_.empty() || !std::holds_alternative<Text>(items_.back())) items_.emplace_back(Text{});
  std::get<Text>(items_.back()).text += text;
}

void Report::table(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.header.size(); ++c) {
    std::size_t width = width_of(table.header[c]);
    for (const auto& row : table.rows) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  const bool colored = !table.colors.empty() && colors_are_welcome();
  const auto print_row = [&](const std::vector<std::string>& cells, bool is_header,
                             const std::vector<std::string>& colors) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - width_of(cells[c]), ' ');
      const std::string& sample = is_header && !table.rows.empty() ? table.rows[0][c] : cells[c];
      const std::string cell = colors.empty() || colors[c].empty()
                                   ? cells[c]
                                   : fmt::format("\x1b[{}m{}\x1b[0m", colors[c], cells[c]);
      text += "  " + (looks_like_a_number(sample) ? pad + cell : cell + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  print_row(table.header, true, {});
  for (std::size_t r = 0; r < table.rows.size(); ++r)
    print_row(table.rows[r], false, colored ? table.colors[r] : std::vector<std::string>());
  items_.emplace_back(table);
}

void Report::record(const std::string& path, Value value) {
  values_.emplace_back(path, std::move(value));
}

void Report::picture(const std::string& caption, const std::string& svg) {
  items_.emplace_back(Picture{caption, svg});
}

void Report::check(const Comparison& comparison) {
  if (!comparing_)
    fmt::print("  {:<38} {:<12} {:>11} {:>10}  verdict\n", "name", "shape", "largest |d|",
               "tolerance");
  comparing_ = true;
  fmt::print("  {:<38} {:<12} {:>11} {:>10}  {}\n", comparison.name, comparison.shape,
             short_number(comparison.max_difference), short_number(comparison.tolerance.bound),
             verdict_of(comparison));
  items_.emplace_back(Check{comparison.name, short_number(comparison.max_difference),
                            "<= " + short_number(comparison.tolerance.bound), comparison.passed,
                            comparison});
}

void Report::expect(const std::string& name, std::int64_t found, std::int64_t wanted) {
  expect(name, std::to_string(found), std::to_string(wanted));
}

void Report::expect(const std::string& name, const std::string& found, const std::string& wanted) {
  const bool passed = found == wanted;
  fmt::print("  {}: {}  {}\n", name, found, passed ? "ok" : "WRONG, expected " + wanted);
  comparing_ = false;
  items_.emplace_back(Check{name, found, wanted, passed, {}});
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
  fmt::print("\n{}\n", last_line());
  return failed_checks() == 0 ? 0 : 1;
}

std::int64_t Report::failed_checks() const {
  const auto checks = all<Check>();
  return std::count_if(checks.begin(), checks.end(), [](const Check* c) { return !c->passed; });
}

std::string Report::verdict() const {
  if (all<Check>().empty()) return "DONE";
  return failed_checks() == 0 ? "PASS" : "FAIL";
}

std::string Report::last_line() const {
  std::string result = verdict();
  if (result == "DONE") return result + " (nothing compared)";
  if (result == "PASS") return result;
  return fmt::format("{} ({} of {} checks)", result, failed_checks(), all<Check>().size());
}

}  // namespace tp

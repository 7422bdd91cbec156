// What a chapter prints, and the same as JSON and as a page. [introduced in chapter 01]
//
// Everything is printed at once and kept, in order, for the files. Times go into one marked block at the
// end, so that the rest of the output is the same in every run.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/core/compare.h"
#include "common/core/table.h"

namespace tp {

class Report {
 public:
  Report() = default;
  ~Report();  // ends a streamed line, so that an error message stands on a line of its own
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int32_t>>;

  // "== title ==" on a line of its own.
  void section(const std::string& title);
  void line(const std::string& text = "");
  // Text without a line break, flushed at once: for a model that speaks.
  void stream(const std::string& text);
  void table(const Table& table);

  // A value for the JSON file only. `path` is a JSON pointer: "/prompts/0/text".
  void record(const std::string& path, Value value);

  // A picture for the page only; `svg` is what Svg::to_string() returns. [chapter 08]
  void picture(const std::string& caption, const std::string& svg);

  // A comparison with one device; prints a line and counts for the verdict.
  void check(const Comparison& comparison);
  // A fact that must hold, for example expect("all_reduce calls", 1, 1).
  void expect(const std::string& name, std::int64_t found, std::int64_t wanted);
  void expect(const std::string& name, const std::string& found, const std::string& wanted);

  // A duration for the times block.
  void time(const std::string& name, double microseconds);
  void time(const std::string& name, const std::string& text);

  // Prints the times and the last line: PASS, FAIL (k of n checks) or DONE (nothing compared).
  // Returns the exit code, 0 or 1.
  int finish();

  // The whole report as JSON text.
  std::string to_json() const;
  // The same as one HTML page that needs no other file and no script. [chapter 08]
  std::string to_html(const std::string& title) const;

 private:
  struct Heading {
    std::string title;
  };
  struct Text {
    std::string text;  // lines, each with its end
  };
  struct Picture {
    std::string caption;
    std::string svg;
  };
  struct Check {
    std::string name;
    std::string found;
    std::string wanted;
    bool passed = false;
    Comparison comparison;  // empty name if it was an expectation
  };
  struct Time {
    std::string name;
    std::string text;
  };
  using Item = std::variant<Heading, Text, Table, Check, Picture>;

  void add_text(const std::string& text);
  // The items of one kind, in order.
  template <class Kind>
  std::vector<const Kind*> all() const {
    std::vector<const Kind*> found;
    for (const Item& item : items_)
      if (const auto* kind = std::get_if<Kind>(&item)) found.push_back(kind);
    return found;
  }
  // "PASS", "FAIL" or "DONE".
  std::string verdict() const;
  std::int64_t failed_checks() const;
  // The last line of the output.
  std::string last_line() const;

  std::vector<Item> items_;
  std::vector<std::pair<std::string, Value>> values_;
  std::vector<Time> times_;
  bool comparing_ = false;
  bool line_is_open_ = false;
};

}  // namespace tp

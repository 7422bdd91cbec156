// Report::to_html: the same items as on the terminal, and the pictures.
#include <fmt/format.h>

#include "common/core/markup.h"
#include "common/core/report.h"

namespace tp {

namespace {

// The page follows the reader's choice of light or dark.
constexpr char kStyle[] = R"(
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
pre { white-space: pre-wrap; }
.wide { overflow-x: auto; margin: 1em 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2em 0.8em; border-bottom: 1px solid rgba(128, 128, 128, 0.4);
         text-align: left; vertical-align: top; }
.number { text-align: right; }
.failed { font-weight: bold; background: rgba(213, 94, 0, 0.3); }
figure { margin: 1em 0; overflow-x: auto; }
.verdict { font-size: 1.3em; font-weight: bold; }
)";

using Cells = std::vector<std::string>;

std::string cells_of(const Cells& cells, std::string_view tag, const Cells& samples) {
  std::string html;
  for (std::size_t c = 0; c < cells.size(); ++c)
    html += fmt::format("<{0}{1}>{2}</{0}>", tag,
                        looks_like_a_number(samples[c]) ? " class=\"number\"" : "",
                        escaped_markup(cells[c]));
  return html;
}

std::string html_of(const Table& table) {
  std::string html =
      "<div class=\"wide\"><table>\n<tr>" +
      cells_of(table.header, "th", table.rows.empty() ? table.header : table.rows[0]) + "</tr>\n";
  for (const Cells& row : table.rows) html += "<tr>" + cells_of(row, "td", row) + "</tr>\n";
  return html + "</table></div>\n";
}

}  // namespace

std::string Report::to_html(const std::string& title) const {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n",
      escaped_markup(title), kStyle);
  bool in_checks = false;  // checks that follow each other share a table
  for (const Item& item : items_) {
    const auto* check = std::get_if<Check>(&item);
    if ((check != nullptr) != in_checks)
      html += in_checks ? "</table></div>\n"
                        : "<div class=\"wide\"><table>\n<tr><th>check</th><th>found</th>"
                          "<th>expected</th><th>verdict</th></tr>\n";
    in_checks = check != nullptr;
    if (check != nullptr)
      html += fmt::format("<tr{}>{}</tr>\n", check->passed ? "" : " class=\"failed\"",
                          cells_of({check->name, check->found, check->wanted,
                                    check->passed ? "ok" : "WRONG " + check->comparison.place},
                                   "td", {"", "", "", ""}));
    else if (const auto* heading = std::get_if<Heading>(&item))
      html += fmt::format("<h2>{}</h2>\n", escaped_markup(heading->title));
    else if (const auto* text = std::get_if<Text>(&item))
      html += fmt::format("<pre>{}</pre>\n", escaped_markup(text->text));
    else if (const auto* table = std::get_if<Table>(&item))
      html += html_of(*table);
    else if (const auto* picture = std::get_if<Picture>(&item))
      html += fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", picture->svg,
                          escaped_markup(picture->caption));
  }
  if (in_checks) html += "</table></div>\n";
  if (!times_.empty()) {
    Table table{"times", {"time", "value"}, {}};
    for (const Time& t : times_) table.rows.push_back({t.name, t.text});
    html += "<h2>Times</h2>\n" + html_of(table);
  }
  return html + fmt::format("<p class=\"verdict\">{}</p>\n</body>\n</html>\n",
                            escaped_markup(last_line()));
}

}  // namespace tp

// Report::to_json, apart from the rest because the JSON library is slow to compile.
#include <cmath>

#include <nlohmann/json.hpp>

#include "common/core/report.h"

namespace tp {

namespace {

using Json = nlohmann::ordered_json;

// NaN and infinity are no numbers in JSON.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "nan" : "inf");
}

Json to_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& cells : table.rows) {
    Json row;
    for (std::size_t c = 0; c < cells.size(); ++c) row[table.header[c]] = cells[c];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string Report::to_json() const {
  Json root;
  for (const auto& [path, value] : values_)
    std::visit([&, &pointer = path](const auto& v) { root[Json::json_pointer(pointer)] = v; },
               value);
  for (const Table* table : all<Table>()) root["tables"][table->name] = tp::to_json(*table);
  Json checks = Json::array();
  for (const Check* each : all<Check>()) {
    const Check& check = *each;
    Json item{{"name", check.name}, {"passed", check.passed}};
    if (!check.comparison.name.empty()) {
      item["shape"] = check.comparison.shape;
      item["max_difference"] = number(check.comparison.max_difference);
      item["tolerance"] = check.comparison.tolerance.bound;
      item["tolerance_reason"] = check.comparison.tolerance.reason;
      item["place"] = check.comparison.place;
    } else {
      item["found"] = check.found;
      item["expected"] = check.wanted;
    }
    checks.push_back(std::move(item));
  }
  root["checks"] = std::move(checks);
  for (const Time& t : times_) root["times"][t.name] = t.text;
  root["result"] = verdict();
  // Text of a model may hold broken UTF-8; it is replaced, not refused.
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tp

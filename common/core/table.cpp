#include "common/core/table.h"

#include <fmt/format.h>

namespace tp {

bool looks_like_a_number(std::string_view cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-e% ") == std::string_view::npos;
}

std::string cell_of(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    while (end < values.size() && values[end] == values[begin]) ++end;
    if (begin > 0) text += ", ";
    text += values[begin];
    if (end - begin > 1) text += fmt::format(" x {}", end - begin);
  }
  return text;
}

std::string cell_of(Range range) {
  if (range.size() <= 0) return "none";
  if (range.size() == 1) return std::to_string(range.begin);
  return fmt::format("{}-{}", range.begin, range.end - 1);
}

}  // namespace tp

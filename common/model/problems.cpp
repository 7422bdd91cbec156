#include "common/model/problems.h"

#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

constexpr std::size_t kMaxLines = 20;

}  // namespace

void Problems::add(std::string line) {
  if (++count_ <= kMaxLines) lines_.push_back(std::move(line));
}

std::string Problems::text() const {
  std::string text = fmt::format("{}", fmt::join(lines_, "\n"));
  if (count_ > lines_.size()) text += fmt::format("\n(and {} more)", count_ - lines_.size());
  return text;
}

void Problems::throw_if_any() const {
  if (!empty()) throw input_error(text());
}

}  // namespace tp

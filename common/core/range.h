// Half-open ranges of indices. [introduced in chapter 01]
#pragma once

#include <cstdint>

namespace tp {

// The indices begin, begin + 1, ..., end - 1.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  friend bool operator==(const Range&, const Range&) = default;
};

}  // namespace tp

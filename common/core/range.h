// Half-open ranges of indices. [introduced in chapter 01]
#pragma once

#include <algorithm>
#include <cstdint>

namespace tp {

// The indices begin, begin + 1, ..., end - 1.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  // The same range of smaller things: heads 2..3 of 32 features each are the features 64..127.
  Range times(std::int64_t unit) const { return {begin * unit, end * unit}; }
  // Without what lies behind the first `count` indices.
  Range within(std::int64_t count) const { return {std::min(begin, count), std::min(end, count)}; }
  friend bool operator==(const Range&, const Range&) = default;
};

}  // namespace tp

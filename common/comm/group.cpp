#include "common/comm/group.h"

#include <algorithm>
#include <cstring>

namespace tp {

std::int64_t Group::min(std::int64_t value) {
  const std::span<const std::byte> all = exchange(std::as_bytes(std::span(&value, 1)));
  for (std::size_t at = 0; at < all.size(); at += sizeof value) {
    std::int64_t other = 0;
    std::memcpy(&other, all.data() + at, sizeof other);
    value = std::min(value, other);
  }
  return value;
}

}  // namespace tp

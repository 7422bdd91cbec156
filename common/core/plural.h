// Counts in sentences. [introduced in chapter 08]
#pragma once

#include <string>
#include <string_view>

namespace tp {

// "1 card", "2 cards".
template <class Number>
std::string plural(Number count, std::string_view what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace tp

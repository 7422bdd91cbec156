// Text inside HTML and SVG. [introduced in chapter 08]
#pragma once

#include <string>
#include <string_view>

namespace tp {

// The text with what markup would take for its own replaced: & < > " and '. Control characters, but
// for line ends and tabs, become blanks.
std::string escaped_markup(std::string_view text);

}  // namespace tp

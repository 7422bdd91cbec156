// A machine's links in colours. [introduced in chapter 10]
#pragma once

#include <string>

#include "common/topology/machine.h"

namespace tp {

// The colour of a link in a picture, and on a terminal: "32".
std::string picture_color(Link link);
std::string terminal_color(Link link);

// The matrix as SVG, with the word in every cell and what the colours mean.
std::string draw_links(const Machine& machine);

}  // namespace tp

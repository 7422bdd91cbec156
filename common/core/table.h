// A table of text cells. [introduced in chapter 01]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/core/range.h"

namespace tp {

struct Table {
  std::string name;  // key in the JSON output
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  // The colours that the rows' cells have on a terminal: "32", or "1;31", as ECMA-48 numbers them; ""
  // for none. Empty if there are none at all. [chapter 10]
  std::vector<std::vector<std::string>> colors;
};

// Numbers stand at the right of their column, text at the left.
bool looks_like_a_number(std::string_view cell);

// One cell for the values of several ranks; equal neighbours are counted: "[2, 4] x 3, [1, 4]".
std::string cell_of(const std::vector<std::string>& values);

// The first and the last index of a range: "8-15", "3" for a single one, "none".
std::string cell_of(Range range);

}  // namespace tp

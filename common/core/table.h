// A table of text cells. [introduced in chapter 01]
#pragma once

#include <string>
#include <vector>

#include "common/core/range.h"

namespace tp {

struct Table {
  std::string name;  // key in the JSON output
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// One cell for the values of several ranks; equal neighbours are counted: "[2, 4] x 3, [1, 4]".
std::string cell_of(const std::vector<std::string>& values);

// The first and the last index of a range: "8-15", "3" for a single one, "none".
std::string cell_of(Range range);

}  // namespace tp

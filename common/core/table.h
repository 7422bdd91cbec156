// A table of text cells. [introduced in chapter 01]
#pragma once

#include <string>
#include <vector>

namespace tp {

struct Table {
  std::string name;  // key in the JSON output
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// One cell for the values of several ranks; equal neighbours are counted: "[2, 4] x 3, [1, 4]".
std::string cell_of(const std::vector<std::string>& values);

}  // namespace tp

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

}  // namespace tp

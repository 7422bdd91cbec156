// All that is wrong with an input, reported at once. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tp {

// Collects one line per problem, so that a user cures them in one go instead of one run each.
class Problems {
 public:
  void add(std::string line);
  bool empty() const { return count_ == 0; }
  // The first 20 lines, and how many follow.
  std::string text() const;

  // Errors: tp::Error (input) with text(), if there are problems.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

}  // namespace tp

// The regular expression by which a tokenizer splits text. [introduced in chapter 06]
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

// A compiled pattern. Cheap to copy; several threads may use it at once.
class SplitPattern {
 public:
  // The patterns of tokenizer.json are written for the library Oniguruma; here PCRE2 runs them.
  // Where the two read something differently it is translated (\s, \S) or refused (\w, \b, [a[b]],
  // {2}+, ...), because other splits are other ids. What is a letter (\p{L}) is for PCRE2's version
  // of Unicode to say: 14 in release 10.42.
  // Errors:   tp::Error (input) naming the pattern and what is wrong with it.
  explicit SplitPattern(const std::string& pattern);

  // Appends the pieces of `text` (valid UTF-8) to `pieces`: each match is one piece, and so is what
  // stands between two matches. Nothing is lost, no piece is empty.
  // Errors:   tp::Error (input) if the pattern backtracks without end on this text.
  void split(std::string_view text, std::vector<std::string>& pieces) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tp

// Lines and words of what a terminal program printed. [introduced in chapter 10]
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

struct Word {
  std::string_view text;   // into the line
  std::size_t column = 0;  // of its first byte, counted from 1
};

struct TextLine {
  std::size_t number = 0;  // counted from 1
  std::string text;        // escape codes and other control bytes, but tabs, have become blanks

  // What stands between blanks and tabs.
  std::vector<Word> words() const;
  // The column behind the last byte that is no blank.
  std::size_t end_column() const;
};

// A piece of foreign text for a message: bytes that are not printable ASCII become "?", and what goes
// beyond `most` bytes "...".
std::string printable(std::string_view text, std::size_t most);

// Takes a text apart, line by line: line ends LF or CR LF, with or without a UTF-8 byte order mark,
// with or without terminal colours. Every byte keeps its column.
class LineReader {
 public:
  explicit LineReader(std::string_view text);
  std::optional<TextLine> next();

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

}  // namespace tp

#include "common/topology/text_lines.h"

#include <algorithm>

namespace tp {

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kBlanks = " \t";

// Where an escape code such as ESC [ 4 m ends.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  ++at;  // ESC
  if (at == text.size() || text[at] != '[') return std::min(at + 1, text.size());
  ++at;
  while (at < text.size() && text[at] >= 0x20 && text[at] < 0x40) ++at;
  return std::min(at + 1, text.size());
}

// The same bytes, with blanks in place of all that takes no part in the text.
std::string blanked(std::string_view line) {
  std::string text(line);
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::size_t end = i + 1;
    if (byte == 0x1b)
      end = end_of_escape(line, i);
    else if (text.compare(i, 2, "\xc2\xa0") == 0)  // a blank that does not break, as web pages have
      end = i + 2;
    else if (byte == '\t' || (byte >= 0x20 && byte != 0x7f)) {
      ++i;
      continue;
    }
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(i),
              text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
    i = end;
  }
  return text;
}

}  // namespace

std::vector<Word> TextLine::words() const {
  std::vector<Word> found;
  const std::string_view all = text;
  for (std::size_t end = 0;;) {
    const std::size_t begin = all.find_first_not_of(kBlanks, end);
    if (begin == std::string_view::npos) return found;
    end = std::min(all.find_first_of(kBlanks, begin), all.size());
    found.push_back({all.substr(begin, end - begin), begin + 1});
  }
}

std::size_t TextLine::end_column() const {
  const std::size_t last = text.find_last_not_of(kBlanks);
  return last == std::string::npos ? 1 : last + 2;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string safe(text.substr(0, most));
  for (char& c : safe)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text.size() > most ? safe + "..." : safe;
}

LineReader::LineReader(std::string_view text) : rest_(text) {
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

std::optional<TextLine> LineReader::next() {
  if (rest_.empty()) return std::nullopt;
  const std::size_t end = std::min(rest_.find('\n'), rest_.size());
  TextLine line{++number_, blanked(rest_.substr(0, end))};
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  return line;
}

}  // namespace tp

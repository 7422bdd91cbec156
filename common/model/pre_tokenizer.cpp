#include "common/model/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/model/byte_level.h"
#include "common/model/normalizer.h"

namespace tp {
namespace {

// Cuts `text` before each `mark`.
void split_before(std::string_view text, std::string_view mark, std::vector<std::string>& pieces) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(mark, 1), text.size());
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

PreTokenizerStep split_isolated(SplitPattern pattern) {
  return [pattern = std::move(pattern)](const Pieces& pieces) {
    Pieces smaller{{}, pieces.from_start};
    for (const std::string& piece : pieces.texts) pattern.split(piece, smaller.texts);
    return smaller;
  };
}

PreTokenizerStep split_digits(DigitRows rows) {
  return split_isolated(SplitPattern(rows == DigitRows::cut ? "\\p{N}" : "\\p{N}+"));
}

PreTokenizerStep add_prefix_blank() {
  return [](Pieces pieces) {
    for (std::string& piece : pieces.texts)
      if (piece.front() != ' ') piece.insert(0, 1, ' ');
    return pieces;
  };
}

PreTokenizerStep write_bytes_as_characters() {
  return [](Pieces pieces) {
    for (std::string& piece : pieces.texts) piece = bytes_to_characters(piece);
    return pieces;
  };
}

PreTokenizerStep write_blanks(Metaspace options) {
  return [options = std::move(options)](const Pieces& pieces) {
    using Prepend = Metaspace::Prepend;
    Pieces written{{}, pieces.from_start};
    bool prepends = options.prepend == Prepend::always ||
                    (options.prepend == Prepend::first && pieces.from_start);
    for (const std::string& piece : pieces.texts) {
      std::string text = replaced(piece, " ", options.blank);
      if (prepends && !text.starts_with(options.blank)) text.insert(0, options.blank);
      prepends = options.prepend == Prepend::always;
      if (options.split)
        split_before(text, options.blank, written.texts);
      else
        written.texts.push_back(std::move(text));
    }
    return written;
  };
}

}  // namespace tp

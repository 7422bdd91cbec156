#include "common/model/pre_tokenizer.h"

#include <utility>

#include "common/model/byte_level.h"

namespace tp {

PreTokenizerStep split_isolated(SplitPattern pattern) {
  return [pattern = std::move(pattern)](const std::vector<std::string>& pieces) {
    std::vector<std::string> smaller;
    for (const std::string& piece : pieces) pattern.split(piece, smaller);
    return smaller;
  };
}

PreTokenizerStep add_prefix_blank() {
  return [](std::vector<std::string> pieces) {
    for (std::string& piece : pieces)
      if (piece.front() != ' ') piece.insert(0, 1, ' ');
    return pieces;
  };
}

PreTokenizerStep write_bytes_as_characters() {
  return [](std::vector<std::string> pieces) {
    for (std::string& piece : pieces) piece = bytes_to_characters(piece);
    return pieces;
  };
}

}  // namespace tp

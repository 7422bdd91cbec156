// The steps that cut a text into words before byte-pair encoding; merges never cross a cut.
// [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/split_pattern.h"

namespace tp {

// The pieces that a text has been cut into: valid UTF-8, none of them empty.
struct Pieces {
  std::vector<std::string> texts;
  bool from_start = true;  // the first one begins where the whole input does, not behind a token
};

// A step takes the pieces that the steps before it made and returns them cut further, or rewritten.
// A new kind of pre-tokenizer is one more function below.
using PreTokenizerStep = std::function<Pieces(Pieces pieces)>;

// The split of GPT-2, which the kind "ByteLevel" applies unless it is told not to.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Each match of the pattern becomes a piece, and what stands between two matches, too ("Isolated").
PreTokenizerStep split_isolated(SplitPattern pattern);

// Each digit becomes a piece, or each row of digits.
enum class DigitRows : std::uint8_t { cut, kept };
PreTokenizerStep split_digits(DigitRows rows);

// Puts a blank before each piece that does not begin with one.
PreTokenizerStep add_prefix_blank();

// Writes each byte of a piece as its character of the byte alphabet (byte_level.h).
PreTokenizerStep write_bytes_as_characters();

// SentencePiece's way with blanks: each becomes the visible character `blank` (U+2581).
struct Metaspace {
  enum class Prepend : std::uint8_t {
    never,
    first,  // before the piece with which the input starts
    always  // before each piece
  };
  std::string blank;
  Prepend prepend = Prepend::always;  // one more blank, unless there is one in front
  bool split = true;                  // each blank begins a new piece
};
PreTokenizerStep write_blanks(Metaspace options);

}  // namespace tp

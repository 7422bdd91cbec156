// The steps that cut a text into words before byte-pair encoding; merges never cross a cut.
// [introduced in chapter 06]
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/split_pattern.h"

namespace tp {

// A step takes the pieces that the steps before it made and returns them cut further, or rewritten.
// Pieces are valid UTF-8 and never empty. A new kind of pre-tokenizer is one more function below.
using PreTokenizerStep = std::function<std::vector<std::string>(std::vector<std::string> pieces)>;

// The split of GPT-2, which the kind "ByteLevel" applies unless it is told not to.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Each match of the pattern becomes a piece, and what stands between two matches, too ("Isolated").
PreTokenizerStep split_isolated(SplitPattern pattern);

// Puts a blank before each piece that does not begin with one.
PreTokenizerStep add_prefix_blank();

// Writes each byte of a piece as its character of the byte alphabet (byte_level.h).
PreTokenizerStep write_bytes_as_characters();

}  // namespace tp

// What a token, as the file writes it, adds to a decoded text. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

// The decoder of a tokenizer.json: how its tokens are to be read.
struct TokenDecoding {
  struct Replacement {
    std::string what;
    std::string by;
  };
  bool byte_level = false;                // written in the byte alphabet (byte_level.h); else:
  std::vector<Replacement> replacements;  // made in each token, in this order
  bool byte_fallback = false;             // "<0xE4>" is the byte E4
  std::string front;                      // this character is taken off the front of a text,
  std::int64_t front_count = 0;           // at most so many times
};

struct TokenText {
  std::string bytes;     // of a byte-level token by themselves not always valid UTF-8
  bool is_byte = false;  // one byte of a character that has no token of its own
};

// The text of one token. One with a character outside the byte alphabet stands for its own text.
TokenText text_of_token(std::string_view token, const TokenDecoding& decoding);

}  // namespace tp

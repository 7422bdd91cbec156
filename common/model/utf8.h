// UTF-8 one character at a time; bytes that are no UTF-8 are replaced. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tp {

// U+FFFD, which stands where bytes are no character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What stands at the front of some bytes.
struct Utf8Character {
  enum class Kind : std::uint8_t {
    valid,
    invalid,     // no character begins with these bytes
    incomplete,  // a character begins, but the bytes end before it does
  };
  Kind kind = Kind::valid;
  std::size_t bytes = 0;    // how many bytes it takes, at least 1
  char32_t code_point = 0;  // of a valid character
};

// Unicode's property White_Space.
bool is_white_space(char32_t character);

// The character at the front of `bytes`, which must not be empty. An invalid one takes the longest
// stretch that could have become a character: E4 BD before 41 is one invalid character of two
// bytes.
// Source:   The Unicode Standard, section 3.9: table 3-7, "substitution of maximal subparts".
Utf8Character first_character(std::string_view bytes);

// Takes everything that is decided off the front of `bytes` and returns it as valid UTF-8, each
// invalid character as one U+FFFD. What stays in `bytes` is the beginning of a character: at most
// 3 bytes.
std::string take_decided(std::string& bytes);

// The whole of `bytes` as valid UTF-8; an incomplete character at the end also becomes one U+FFFD.
std::string to_valid_utf8(std::string bytes);

}  // namespace tp

// The byte alphabet of byte-level tokenizers: every byte is written as one visible character.
// [introduced in chapter 06]
//
// A vocabulary file holds text, but the tokens of a byte-level model are byte strings: half a
// Chinese character is a token, too. So each of the 256 bytes has a character. Bytes that are
// visible characters in Latin-1 stand for themselves, the other 68 are written as U+0100, U+0101,
// ... in order: a blank is U+0120, a line feed U+010A.
// Source: Radford et al. 2019 (GPT-2), the byte encoder of the released code.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tp {

// "a b" -> "a\u0120b": one character for each byte.
std::string bytes_to_characters(std::string_view bytes);

// The reverse; nothing if one of the characters is not in the alphabet.
std::optional<std::string> characters_to_bytes(std::string_view characters);

}  // namespace tp

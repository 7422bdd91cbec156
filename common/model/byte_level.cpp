#include "common/model/byte_level.h"

#include <array>
#include <cstddef>

#include "common/model/utf8.h"

namespace tp {
namespace {

constexpr std::size_t kAlphabetEnd = 0x100 + 68;  // one past the last code point of the alphabet

struct Alphabet {
  std::array<std::string, 256> character_of_byte;
  std::array<std::optional<char>, kAlphabetEnd> byte_of_code_point;
};

bool is_visible_in_latin1(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  unsigned next_stand_in = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned code_point = is_visible_in_latin1(byte) ? byte : next_stand_in++;
    std::string& character = alphabet.character_of_byte[byte];
    if (code_point < 0x80) {
      character = {static_cast<char>(code_point)};
    } else {
      character = {static_cast<char>(0xC0 | code_point >> 6),
                   static_cast<char>(0x80 | (code_point & 0x3F))};
    }
    alphabet.byte_of_code_point[code_point] = static_cast<char>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

std::string bytes_to_characters(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes)
    characters += alphabet().character_of_byte[static_cast<unsigned char>(byte)];
  return characters;
}

std::optional<std::string> characters_to_bytes(std::string_view characters) {
  std::string bytes;
  while (!characters.empty()) {
    const Utf8Character character = first_character(characters);
    if (character.kind != Utf8Character::Kind::valid || character.code_point >= kAlphabetEnd)
      return std::nullopt;
    const std::optional<char> byte = alphabet().byte_of_code_point[character.code_point];
    if (!byte) return std::nullopt;
    bytes += *byte;
    characters.remove_prefix(character.bytes);
  }
  return bytes;
}

}  // namespace tp

#include "common/model/utf8.h"

#include <utility>

namespace tp {

Utf8Character first_character(std::string_view bytes) {
  using Kind = Utf8Character::Kind;
  const auto byte_at = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };

  const unsigned lead = byte_at(0);
  if (lead < 0x80) return {Kind::valid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::invalid, 1, 0};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;

  // After some first bytes the second one has fewer choices: no overlong forms, no surrogates,
  // nothing above U+10FFFF.
  unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, i, 0};
    const unsigned byte = byte_at(i);
    if (byte < lowest || byte > highest) return {Kind::invalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3F);
    lowest = 0x80;
    highest = 0xBF;
  }
  return {Kind::valid, length, code_point};
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string take_decided(std::string& bytes) {
  std::string text;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Character character = first_character(rest);
    if (character.kind == Utf8Character::Kind::incomplete) break;
    if (character.kind == Utf8Character::Kind::valid)
      text += rest.substr(0, character.bytes);
    else
      text += kReplacementCharacter;
    rest.remove_prefix(character.bytes);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return text;
}

std::string to_valid_utf8(std::string bytes) {
  std::string text = take_decided(bytes);
  if (!bytes.empty()) text += kReplacementCharacter;
  return text;
}

}  // namespace tp

#include "common/model/token_text.h"

#include <charconv>
#include <optional>

#include "common/model/byte_level.h"
#include "common/model/normalizer.h"

namespace tp {
namespace {

// "<0xE4>" -> E4
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  unsigned char byte = 0;
  const char* const end = token.data() + 5;
  const auto [parsed_end, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || parsed_end != end) return {};
  return static_cast<char>(byte);
}

}  // namespace

TokenText text_of_token(std::string_view token, const TokenDecoding& decoding) {
  if (decoding.byte_level) return {characters_to_bytes(token).value_or(std::string(token))};
  std::string text(token);
  for (const auto& [what, by] : decoding.replacements) text = replaced(text, what, by);
  if (decoding.byte_fallback)
    if (const std::optional<char> byte = byte_of(text)) return {{*byte}, true};
  return {std::move(text)};
}

}  // namespace tp

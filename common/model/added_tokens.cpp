#include "common/model/added_tokens.h"

#include <algorithm>
#include <functional>

#include "common/model/utf8.h"

namespace tp {
namespace {

// Unicode's property White_Space.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t white_space_at_front(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Character character = first_character(text.substr(bytes));
    if (!is_white_space(character.code_point)) break;
    bytes += character.bytes;
  }
  return bytes;
}

std::size_t white_space_at_back(std::string_view text) {
  const auto continues_a_character = [](char byte) { return (byte & 0xC0) == 0x80; };
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (continues_a_character(text[begin])) --begin;
    if (!is_white_space(first_character(text.substr(begin)).code_point)) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens)
    tokens_of_first_byte_[static_cast<unsigned char>(token.content.front())].push_back(token);
  for (std::vector<AddedToken>& group : tokens_of_first_byte_)
    std::ranges::sort(group, std::ranges::greater{},
                      [](const AddedToken& token) { return token.content.size(); });
}

const AddedToken* AddedTokenMatcher::longest_at_front(std::string_view text) const {
  for (const AddedToken& token : tokens_of_first_byte_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

std::vector<Segment> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t segment_begin = 0;
  const auto cut = [&](std::size_t position, std::optional<std::int32_t> id) {
    if (position > segment_begin)
      segments.push_back({text.substr(segment_begin, position - segment_begin), id});
    segment_begin = position;
  };
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = longest_at_front(text.substr(i));
    if (!token) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    std::size_t end = i + token->content.size();
    if (token->lstrip)
      begin -= white_space_at_back(text.substr(segment_begin, begin - segment_begin));
    if (token->rstrip) end += white_space_at_front(text.substr(end));
    cut(begin, std::nullopt);
    cut(end, token->id);
    i = end;
  }
  cut(text.size(), std::nullopt);
  return segments;
}

}  // namespace tp

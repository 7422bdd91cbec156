#include "common/model/added_tokens.h"

#include <algorithm>
#include <functional>

#include "common/model/utf8.h"

namespace tp {
namespace {

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
    std::ranges::stable_sort(group, std::ranges::greater{},
                             [](const AddedToken& token) { return token.content.size(); });
}

const AddedToken* AddedTokenMatcher::longest_at_front(std::string_view text) const {
  for (const AddedToken& token : tokens_of_first_byte_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

std::vector<Segment> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t done = 0;            // where the last segment ends
  std::size_t white_space_to = 0;  // an end of white space that has been looked for
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = longest_at_front(text.substr(i));
    if (!token) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    i += token->content.size();
    std::size_t end = i;
    if (token->lstrip)
      begin = begin < done ? done : begin - white_space_at_back(text.substr(done, begin - done));
    if (token->rstrip) {
      if (white_space_to < end) white_space_to = end + white_space_at_front(text.substr(end));
      end = white_space_to;
    }
    if (done < begin) segments.push_back({text.substr(done, begin - done), std::nullopt});
    if (begin < end) segments.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), std::nullopt});
  return segments;
}

}  // namespace tp

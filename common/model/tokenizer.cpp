#include "common/model/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/model/byte_level.h"
#include "common/model/stream_decoder.h"
#include "common/model/tokenizer_file.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  std::ranges::copy_if(tokens, std::back_inserter(selected),
                       [=](const AddedToken& token) { return token.normalized == normalized; });
  return AddedTokenMatcher(selected);
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(read_tokenizer_file(path));
}

Tokenizer::Tokenizer(TokenizerFile file)
    : literal_tokens_(matcher_of(file.added_tokens, false)),
      normalized_tokens_(matcher_of(file.added_tokens, true)),
      pre_tokenizer_(std::move(file.pre_tokenizer)),
      model_(std::move(file.model)) {
  for (const auto& [token, id] : model_.vocab()) add_token(id, token, false);
  for (const AddedToken& token : file.added_tokens) {
    add_token(token.id, token.content, token.special);
    added_ids_.emplace(token.content, token.id);
  }
}

void Tokenizer::add_token(std::int32_t id, std::string_view token, bool special) {
  // A token with a character outside the byte alphabet stands for its own text.
  tokens_[id] = {characters_to_bytes(token).value_or(std::string(token)), special};
  vocab_size_ = std::max(vocab_size_, id + 1);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  const std::string valid_text = to_valid_utf8(std::string(text));
  std::vector<std::int32_t> ids;
  for (const Segment& outer : literal_tokens_.split(valid_text)) {
    if (outer.id) {
      ids.push_back(*outer.id);
      continue;
    }
    for (const Segment& inner : normalized_tokens_.split(outer.text)) {
      if (inner.id)
        ids.push_back(*inner.id);
      else
        encode_text(inner.text, ids);
    }
  }
  return ids;
}

void Tokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::vector<std::string> words{std::string(text)};
  for (const PreTokenizerStep& step : pre_tokenizer_) words = step(std::move(words));
  for (const std::string& word : words) model_.encode_word(word, ids);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  for (const Vocabulary* vocab : {&added_ids_, &model_.vocab()})
    if (const auto found = vocab->find(token); found != vocab->end()) return found->second;
  return {};
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() && found->second.special;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? std::string_view() : found->second.bytes;
}

}  // namespace tp

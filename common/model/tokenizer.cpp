#include "common/model/tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/model/stream_decoder.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

std::string apply(const std::vector<NormalizerStep>& steps, std::string text) {
  for (const NormalizerStep& step : steps) text = step(std::move(text));
  return text;
}

AddedTokenMatcher literal_tokens_of(const TokenizerFile& file) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : file.added_tokens)
    if (!token.normalized) tokens.push_back(token);
  return AddedTokenMatcher(tokens);
}

// They are looked for in normalised text, so their own texts have to be normalised.
AddedTokenMatcher normalized_tokens_of(const TokenizerFile& file) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : file.added_tokens) {
    if (!token.normalized) continue;
    token.content = apply(file.normalizer, std::move(token.content));
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return AddedTokenMatcher(tokens);
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(read_tokenizer_file(path));
}

Tokenizer::Tokenizer(TokenizerFile file)
    : literal_tokens_(literal_tokens_of(file)),
      normalized_tokens_(normalized_tokens_of(file)),
      normalizer_(std::move(file.normalizer)),
      pre_tokenizer_(std::move(file.pre_tokenizer)),
      model_(std::move(file.model)),
      specials_(std::move(file.specials)),
      decoding_(std::move(file.decoding)) {
  tokens_.reserve(model_.vocab().size() + file.added_tokens.size());
  for (const auto& [token, id] : model_.vocab()) add_token(id, token, false);
  for (const AddedToken& token : file.added_tokens) {
    add_token(token.id, token.content, token.special);
    added_ids_.emplace(token.content, token.id);
  }
}

void Tokenizer::add_token(std::int32_t id, std::string_view token, bool special) {
  tokens_[id] = {text_of_token(token, decoding_), special};
  vocab_size_ = std::max(vocab_size_, id + 1);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  const std::string valid_text = to_valid_utf8(std::string(text));
  std::vector<std::int32_t> ids;
  if (add_special) ids = specials_.before;
  bool from_start = true;
  for (const Segment& segment : literal_tokens_.split(valid_text)) {
    if (segment.id)
      ids.push_back(*segment.id);
    else
      encode_between(segment.text, from_start, ids);
    from_start = false;
  }
  if (add_special) ids.insert(ids.end(), specials_.after.begin(), specials_.after.end());
  return ids;
}

void Tokenizer::encode_between(std::string_view text,
                               bool from_start,
                               std::vector<std::int32_t>& ids) const {
  const std::string normalized = apply(normalizer_, std::string(text));
  for (const Segment& segment : normalized_tokens_.split(normalized)) {
    if (segment.id)
      ids.push_back(*segment.id);
    else
      encode_words(segment.text, from_start, ids);
    from_start = false;
  }
}

void Tokenizer::encode_words(std::string_view text,
                             bool from_start,
                             std::vector<std::int32_t>& ids) const {
  Pieces pieces{{std::string(text)}, from_start};
  for (const PreTokenizerStep& step : pre_tokenizer_) pieces = step(std::move(pieces));
  for (const std::string& word : pieces.texts) model_.encode_word(word, ids);
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

const TokenText& Tokenizer::token_text(std::int32_t id) const {
  static const TokenText nothing;
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nothing : found->second.text;
}

}  // namespace tp

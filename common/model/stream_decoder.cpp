#include "common/model/stream_decoder.h"

#include <utility>

#include "common/model/utf8.h"

namespace tp {
namespace {

std::int64_t front_count(const Tokenizer& tokenizer, StreamDecoder::Start start) {
  return start == StreamDecoder::Start::of_text ? tokenizer.decoding().front_count : 0;
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Character character = first_character(bytes);
    if (character.kind != Utf8Character::Kind::valid) return false;
    bytes.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special, Start start)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      start_(start),
      front_left_(front_count(tokenizer, start)) {}

std::string StreamDecoder::push(std::int32_t id) {
  if (!tokenizer_->has_token(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
  const TokenText& token = tokenizer_->token_text(id);
  if (token.is_byte) {
    byte_tokens_ += token.bytes;
    return {};
  }
  undecided_ += take_byte_tokens() + token.bytes;
  return without_front(take_decided(undecided_));
}

std::string StreamDecoder::finish() {
  undecided_ += take_byte_tokens();
  std::string text = without_front(to_valid_utf8(std::exchange(undecided_, {})));
  front_left_ = front_count(*tokenizer_, start_);
  return text;
}

std::string StreamDecoder::take_byte_tokens() {
  std::string bytes = std::exchange(byte_tokens_, {});
  if (is_valid_utf8(bytes)) return bytes;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) text += kReplacementCharacter;
  return text;
}

std::string StreamDecoder::without_front(std::string text) {
  const std::string& front = tokenizer_->decoding().front;
  while (front_left_ > 0 && !text.empty()) {
    const bool found = text.starts_with(front);
    if (found) text.erase(0, front.size());
    front_left_ = found ? front_left_ - 1 : 0;
  }
  return text;
}

}  // namespace tp

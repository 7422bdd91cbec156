// Text from tokens that arrive one by one. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <string>

#include "common/model/tokenizer.h"

namespace tp {

// Gives out text as soon as no later token can change it. All it has given out, joined, is what
// Tokenizer::decode makes of the same ids.
//   Byte-level tokens: each character when its last byte has come, since a token may end in the
//   middle of one. Bytes that can no longer become a character come out as U+FFFD; of an incomplete
//   character at the end that is one.
//   Tokens that are single bytes (<0xE4>): when another token, or the end, has come. Hugging Face's
//   decoders look at all neighbouring ones together: if they are not all characters, every one of
//   them is a U+FFFD.
class StreamDecoder {
 public:
  enum class Start : std::uint8_t {
    of_text,        // the decoding of some tokenizers takes a blank off the front of a text,
    in_the_middle,  // but not off what continues one
  };

  // The tokenizer must outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, Start start = Start::of_text);

  // Returns the text that this token completes, maybe none. An id without a token adds nothing.
  std::string push(std::int32_t id);

  // Returns what is left at the end. The decoder is then as new.
  std::string finish();

 private:
  std::string without_front(std::string text);
  std::string take_byte_tokens();

  const Tokenizer* tokenizer_;
  bool skip_special_;
  Start start_;
  std::int64_t front_left_;  // how many characters may still be taken off the front
  std::string undecided_;    // the beginning of a character, at most 3 bytes between calls
  std::string byte_tokens_;  // the latest tokens, if they are single bytes
};

}  // namespace tp

// Text from tokens that arrive one by one. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <string>

#include "common/model/tokenizer.h"

namespace tp {

// Gives out each character as soon as its last byte has come: a token may end in the middle of one.
// All it has given out, joined, is what Tokenizer::decode makes of the same ids.
class StreamDecoder {
 public:
  // The tokenizer must outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Returns the text that this token completes, maybe none. Bytes that can no longer become a
  // character come out as U+FFFD. An id without a token adds nothing.
  std::string push(std::int32_t id);

  // Returns what is left at the end: one U+FFFD if the last character is incomplete. The decoder is
  // as new then.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string undecided_;  // the beginning of a character, at most 3 bytes between calls
};

}  // namespace tp

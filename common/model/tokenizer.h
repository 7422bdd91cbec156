// Text to token ids and back, as the model's own tokenizer.json says. [introduced in chapter 06]
//
// Encoding goes through four stages:
//   1. added tokens    <|endoftext|> and its like are found and get their ids (added_tokens.h);
//   2. pre-tokenizer   the text between them is cut into words, " the", " cat" (pre_tokenizer.h);
//   3. byte alphabet   each byte of a word is written as one character (byte_level.h);
//   4. merges          the characters of a word are merged into tokens (bpe.h).
// The file says which of them there are: 2 and 3 are the steps of its pre-tokenizer.
// Decoding joins the bytes of the tokens (stream_decoder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/model/added_tokens.h"
#include "common/model/bpe.h"
#include "common/model/pre_tokenizer.h"

namespace tp {

struct TokenizerFile;

// A tokenizer never changes after it is loaded: several threads may use one.
class Tokenizer {
 public:
  // Reads a tokenizer.json: byte-level BPE as GPT-2 and its descendants have it. What else is in
  // the file and would change the ids is refused.
  // Errors:   tp::Error (input) naming the file and every key that is wrong.
  static Tokenizer load(const std::filesystem::path& path);

  // The ids of a text, equal to those of Hugging Face's tokenizers. Bytes that are no valid UTF-8
  // are first replaced by U+FFFD, one for each invalid character (utf8.h).
  // Errors:   tp::Error (input) if the vocabulary has no token for a character of the text.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The text of the ids, always valid UTF-8: the tokens' bytes are joined, then what is no
  // character becomes U+FFFD. An id without a token has no text. Special tokens are left out if
  // `skip_special` is true.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // The largest id + 1. A model's own vocabulary may be larger (padding), or smaller by tokens
  // never used.
  std::int32_t vocab_size() const { return vocab_size_; }

  // The id of a token as the file writes it: "<|endoftext|>", or "\u0120the" for " the".
  std::optional<std::int32_t> token_to_id(std::string_view token) const;

  // False for ids outside the vocabulary and in its gaps.
  bool has_token(std::int32_t id) const { return tokens_.contains(id); }

  bool is_special(std::int32_t id) const;

  // What a token adds to the decoded bytes, by itself not always valid UTF-8; empty for an id
  // without a token.
  std::string_view token_bytes(std::int32_t id) const;

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };

  explicit Tokenizer(TokenizerFile file);
  void add_token(std::int32_t id, std::string_view token, bool special);
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const;

  AddedTokenMatcher literal_tokens_;     // looked for in the text as it is,
  AddedTokenMatcher normalized_tokens_;  // and then in what is left, normalised
  std::vector<PreTokenizerStep> pre_tokenizer_;
  Bpe model_;
  Vocabulary added_ids_;
  std::unordered_map<std::int32_t, Token> tokens_;
  std::int32_t vocab_size_ = 0;
};

}  // namespace tp

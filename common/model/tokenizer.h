// Text to token ids and back, as the model's own tokenizer.json says. [introduced in chapter 06]
//
// Encoding goes through five stages, and the file says what each of them does:
//   1. added tokens    <|endoftext|> and its like are found and get their ids (added_tokens.h);
//   2. normalizer      the text between them is rewritten (normalizer.h);
//   3. pre-tokenizer   it is cut into words, " the", " cat" (pre_tokenizer.h);
//   4. merges          the characters of a word are merged into tokens (bpe.h);
//   5. post-processor  special tokens are put around them, if that is asked for.
// Two families do the same things at different places. With GPT-2 and its descendants (Llama 3,
// Qwen, SmolLM2) the pre-tokenizer writes every byte as a character (byte_level.h), so all texts
// have tokens. With SentencePiece and its descendants (Llama 2, Mistral) a blank is written as
// U+2581, by normalizer or pre-tokenizer, words may not be cut at all, and the bytes of characters
// without a token are tokens of their own, <0xE4>.
// Decoding joins the texts of the tokens (token_text.h, stream_decoder.h).
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
#include "common/model/normalizer.h"
#include "common/model/pre_tokenizer.h"
#include "common/model/token_text.h"
#include "common/model/tokenizer_file.h"

namespace tp {

// A tokenizer never changes after it is loaded: several threads may use one.
class Tokenizer {
 public:
  // Reads a tokenizer.json with a BPE model of one of the two families. What else is in the file
  // and would change the ids is refused. No other file is looked at: where tokenizer_config.json
  // wants something else (add_bos_token), versions of Hugging Face's transformers disagree.
  // Errors:   tp::Error (input) naming the file and every key that is wrong; if it is missing and
  //           there is a tokenizer.model, what to do.
  static Tokenizer load(const std::filesystem::path& path);

  // The ids of a text, equal to those of Hugging Face's tokenizers. With `add_special` the special
  // tokens that the model wants around a text, such as the one that begins it, are among them: so a
  // model was trained, so a prompt is encoded. A text that is a prompt with its special tokens
  // already, as a chat template makes it, is encoded without.
  // Added tokens are found wherever the text spells them.
  // Bytes that are no valid UTF-8 are first replaced by U+FFFD, one for each invalid character
  // (utf8.h).
  // Errors:   tp::Error (input) if the vocabulary has no token for a character of the text.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = false) const;

  // The text of the ids, always valid UTF-8, equal to that of Hugging Face's tokenizers: the tokens'
  // bytes are joined, then what is no character becomes U+FFFD. An id without a token has no text.
  // Special tokens are left out if `skip_special` is true.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // The largest id + 1. A model's own vocabulary may be larger (padding), or smaller by tokens
  // never used.
  std::int32_t vocab_size() const { return vocab_size_; }

  // The id of a token as the file writes it: "<|endoftext|>", or "\u0120the" for " the".
  std::optional<std::int32_t> token_to_id(std::string_view token) const;

  // False for ids outside the vocabulary and in its gaps.
  bool has_token(std::int32_t id) const { return tokens_.contains(id); }

  bool is_special(std::int32_t id) const;

  // What a token adds to the decoded bytes; nothing for an id without a token.
  const TokenText& token_text(std::int32_t id) const;
  std::string_view token_bytes(std::int32_t id) const { return token_text(id).bytes; }

  // How texts of tokens become one text.
  const TokenDecoding& decoding() const { return decoding_; }

 private:
  struct Token {
    TokenText text;
    bool special = false;
  };

  explicit Tokenizer(TokenizerFile file);
  void add_token(std::int32_t id, std::string_view token, bool special);
  // `from_start`: nothing of the input stands before this text.
  void encode_between(std::string_view text, bool from_start, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, bool from_start, std::vector<std::int32_t>& ids) const;

  AddedTokenMatcher literal_tokens_;     // looked for in the text as it is,
  AddedTokenMatcher normalized_tokens_;  // and then in what is left, normalised
  std::vector<NormalizerStep> normalizer_;
  std::vector<PreTokenizerStep> pre_tokenizer_;
  Bpe model_;
  SpecialsAround specials_;
  TokenDecoding decoding_;
  Vocabulary added_ids_;
  std::unordered_map<std::int32_t, Token> tokens_;
  std::int32_t vocab_size_ = 0;
};

}  // namespace tp

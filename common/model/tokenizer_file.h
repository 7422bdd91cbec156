// What a Hugging Face tokenizer.json says, checked. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/model/added_tokens.h"
#include "common/model/bpe.h"
#include "common/model/normalizer.h"
#include "common/model/pre_tokenizer.h"
#include "common/model/token_text.h"

namespace tp {

// Ids from here on are refused: no vocabulary is that large, and tables have vocab_size() rows.
inline constexpr std::int32_t kTokenIdLimit = 10'000'000;

// The special tokens that the model's template puts around a text, such as the one that begins it.
struct SpecialsAround {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

struct TokenizerFile {
  Bpe::Parts model;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<AddedToken> added_tokens;
  SpecialsAround specials;
  TokenDecoding decoding;
};

// Reads and checks the file: ids are unique and below the limit, merges only name tokens of the
// vocabulary, and whatever would change the ids or the text but is not supported is refused.
// `truncation` and `padding` shape batches, not the ids of a text, and are not looked at; neither
// is the post-processor "ByteLevel", which only moves offsets.
// Errors:   tp::Error (input) naming the file and each key that is wrong, all at once; one that
//           says what to do if the folder has the tokenizer in another format only.
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);

}  // namespace tp

// Byte-pair encoding: a word becomes tokens by merging neighbours. [introduced in chapter 06]
//
// Training merged the most frequent pair of neighbours over and over and wrote the merges down in
// this order. Encoding does them again: the rank of a merge is its place in that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tp {

// Lets a map of strings be searched by a string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

// Token, as it is written in the file, to id.
using Vocabulary = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

// Neighbours that become one token. All three are ids.
struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

// The merging of one vocabulary. It never changes: several threads may use it.
class Bpe {
 public:
  struct Parts {
    Vocabulary vocab;
    std::vector<Merge> merges;   // in order of rank; a pair that is there twice has its later rank
    bool ignore_merges = false;  // a word that is itself a token is not built from merges
  };
  explicit Bpe(Parts parts);

  const Vocabulary& vocab() const { return vocab_; }

  // Appends the tokens of one word (valid UTF-8, not empty) to `ids`. It starts from one token for
  // each character; as long as some neighbours have a merge, the one of the lowest rank happens,
  // the leftmost among equals. Takes n log n steps for n characters.
  // Errors:   tp::Error (input) for a character without a token: no text is dropped silently.
  // Source:   Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct RankedResult {
    std::size_t rank = 0;
    std::int32_t result = 0;
  };

  std::vector<std::int32_t> characters_to_tokens(std::string_view word) const;
  const RankedResult* find_merge(std::int32_t left, std::int32_t right) const;
  void merge_neighbours(std::vector<std::int32_t>& tokens) const;

  Vocabulary vocab_;
  std::vector<std::int32_t> token_of_code_point_;           // -1 where there is none
  std::unordered_map<std::uint64_t, RankedResult> merges_;  // left id in the upper half of the key
  bool ignore_merges_ = false;
};

}  // namespace tp

// Byte-pair encoding: a word becomes tokens by merging neighbours. [introduced in chapter 06]
//
// Training merged the most frequent pair of neighbours over and over and wrote the merges down in
// this order. Encoding does them again: the rank of a merge is its place in that list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

// Finds the merge of two neighbours: a hash table without chains, since a text is mostly misses.
class MergeTable {
 public:
  struct RankedResult {
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };

  explicit MergeTable(const std::vector<Merge>& merges);
  const RankedResult* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::int32_t left = -1;  // no token: the slot is free
    std::int32_t right = -1;
    RankedResult value;
  };

  std::size_t slot_of(std::int32_t left, std::int32_t right) const;

  std::vector<Slot> slots_;  // a power of two, at least half of them free
};

// Which characters can come to stand side by side in one token. A text without spaces between its
// words is cut where they cannot, so that merging looks at few tokens at a time.
class NeighbourFilter {
 public:
  NeighbourFilter() : possible_(kSlots) {}
  // All neighbours in `token` are possible.
  void add(std::string_view token);
  // False only if no token has them; sometimes true by chance, as pairs share their places.
  bool may_meet(char32_t left, char32_t right) const { return possible_[slot_of(left, right)]; }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 20;
  static std::size_t slot_of(char32_t left, char32_t right);

  std::vector<bool> possible_;
};

// The merging of one vocabulary. It never changes: several threads may use it.
class Bpe {
 public:
  struct Parts {
    Vocabulary vocab;
    std::vector<Merge> merges;   // in order of rank; a pair that is there twice has its later rank
    bool ignore_merges = false;  // a word that is itself a token is not built from merges

    // Characters without a token: each of their bytes is one if the vocabulary has "<0xE4>" and its
    // like for all of them; else the character is unknown.
    bool byte_fallback = false;
    std::optional<std::int32_t> unknown;  // the token of unknown characters
    bool fuse_unknown = false;            // one for neighbours together
    bool byte_alphabet = false;           // characters stand for bytes (byte_level.h); for messages
  };
  explicit Bpe(Parts parts);

  const Vocabulary& vocab() const { return vocab_; }

  // Appends the tokens of one word (valid UTF-8, not empty) to `ids`. It starts from one token for
  // each character; as long as some neighbours have a merge, the one of the lowest rank happens,
  // the leftmost among equals. Takes n log n steps for n characters.
  // Errors:   tp::Error (input) for a character that is unknown, if there is no token for that: no
  //           text is dropped silently.
  // Source:   Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  void append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const;
  bool append_bytes(std::string_view character, std::vector<std::int32_t>& tokens) const;
  std::int32_t token_of(char32_t code_point) const;
  [[noreturn]] void refuse(std::string_view character) const;
  // Bytes of the part of a word that no merge connects with the rest.
  std::size_t independent_front(std::string_view word) const;
  void encode_part(std::string_view part, std::vector<std::int32_t>& ids) const;
  // They merge neighbours in place and return how many tokens are left. The first looks at all
  // neighbours for each merge, which is faster for few tokens.
  std::size_t merge_few(std::span<std::int32_t> tokens) const;
  std::size_t merge_many(std::span<std::int32_t> tokens) const;

  Vocabulary vocab_;
  std::array<std::int32_t, 0x200> token_of_first_code_points_;      // -1 where there is none
  std::unordered_map<char32_t, std::int32_t> token_of_code_point_;  // of the others
  std::array<std::int32_t, 256> token_of_byte_;                     // -1 without a fallback
  MergeTable merges_;
  NeighbourFilter neighbours_;  // in all tokens
  bool ignore_merges_ = false;
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool byte_alphabet_ = false;
};

}  // namespace tp

#include "common/model/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/byte_level.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

constexpr std::int32_t kNoToken = -1;

constexpr std::size_t kFewTokens = 48;
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

// A merge that may happen between the tokens at `position` and behind it.
struct Candidate {
  std::uint32_t rank = 0;
  std::size_t position = 0;
  Merge merge;
};

// Orders a priority queue so that its top is the lowest rank, leftmost among equals.
struct ComesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
  }
};

// Multiplying by 2^64 / golden ratio spreads the keys over the upper bits.
std::uint64_t hash_of(std::uint32_t left, std::uint32_t right) {
  return (std::uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u >> 32;
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(2 * merges.size() + 1)) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right, result] = merges[rank];
    slots_[slot_of(left, right)] = {left, right, {static_cast<std::uint32_t>(rank), result}};
  }
}

const MergeTable::RankedResult* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(left, right)];
  return slot.left == kNoToken ? nullptr : &slot.value;
}

// Where the pair is, or the free slot where it would be.
std::size_t MergeTable::slot_of(std::int32_t left, std::int32_t right) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t hash =
      hash_of(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
  for (std::size_t i = hash & mask;; i = (i + 1) & mask)
    if (slots_[i].left == kNoToken || (slots_[i].left == left && slots_[i].right == right))
      return i;
}

void NeighbourFilter::add(std::string_view token) {
  if (token.empty()) return;
  Utf8Character left = first_character(token);
  token.remove_prefix(left.bytes);
  while (!token.empty()) {
    const Utf8Character right = first_character(token);
    token.remove_prefix(right.bytes);
    possible_[slot_of(left.code_point, right.code_point)] = true;
    left = right;
  }
}

std::size_t NeighbourFilter::slot_of(char32_t left, char32_t right) {
  return hash_of(left, right) % kSlots;
}

Bpe::Bpe(Parts parts)
    : vocab_(std::move(parts.vocab)),
      merges_(parts.merges),
      ignore_merges_(parts.ignore_merges),
      unknown_(parts.unknown),
      fuse_unknown_(parts.fuse_unknown),
      byte_alphabet_(parts.byte_alphabet) {
  token_of_first_code_points_.fill(kNoToken);
  token_of_byte_.fill(kNoToken);
  for (const auto& [token, id] : vocab_) {
    if (token.empty()) continue;
    neighbours_.add(token);
    const Utf8Character first = first_character(token);
    if (first.kind != Utf8Character::Kind::valid || first.bytes != token.size()) continue;
    if (first.code_point < token_of_first_code_points_.size())
      token_of_first_code_points_[first.code_point] = id;
    else
      token_of_code_point_[first.code_point] = id;
  }
  for (std::size_t byte = 0; parts.byte_fallback && byte < token_of_byte_.size(); ++byte)
    if (const auto found = vocab_.find(fmt::format("<0x{:02X}>", byte)); found != vocab_.end())
      token_of_byte_[byte] = found->second;
}

void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = vocab_.find(word); whole != vocab_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  while (word.size() > kFewTokens) {
    const std::size_t bytes = independent_front(word);
    encode_part(word.substr(0, bytes), ids);
    word.remove_prefix(bytes);
  }
  encode_part(word, ids);
}

std::size_t Bpe::independent_front(std::string_view word) const {
  const auto has_token = [&](const Utf8Character& character) {
    return token_of(character.code_point) != kNoToken;
  };
  Utf8Character left = first_character(word);
  std::size_t bytes = left.bytes;
  while (bytes < word.size()) {
    const Utf8Character right = first_character(word.substr(bytes));
    if (has_token(left) && has_token(right) &&
        !neighbours_.may_meet(left.code_point, right.code_point))
      break;
    bytes += right.bytes;
    left = right;
  }
  return bytes;
}

void Bpe::encode_part(std::string_view part, std::vector<std::int32_t>& ids) const {
  const std::size_t begin = ids.size();
  append_characters(part, ids);
  const std::span<std::int32_t> tokens = std::span(ids).subspan(begin);
  ids.resize(begin + (tokens.size() <= kFewTokens ? merge_few(tokens) : merge_many(tokens)));
}

std::int32_t Bpe::token_of(char32_t code_point) const {
  if (code_point < token_of_first_code_points_.size())
    return token_of_first_code_points_[code_point];
  const auto found = token_of_code_point_.find(code_point);
  return found == token_of_code_point_.end() ? kNoToken : found->second;
}

// False, and nothing appended, if one of the bytes has no token.
bool Bpe::append_bytes(std::string_view character, std::vector<std::int32_t>& tokens) const {
  const std::size_t size_before = tokens.size();
  for (const char byte : character) {
    const std::int32_t token = token_of_byte_[static_cast<unsigned char>(byte)];
    if (token == kNoToken) {
      tokens.resize(size_before);
      return false;
    }
    tokens.push_back(token);
  }
  return true;
}

void Bpe::append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const {
  // Hugging Face's tokenizers put the token of an unknown character before the next known one, and
  // so behind bytes that stand between the two.
  bool unknown_waits = false;
  const auto put_unknown = [&] {
    if (unknown_waits) tokens.push_back(*unknown_);
    unknown_waits = false;
  };
  while (!word.empty()) {
    const Utf8Character first = first_character(word);
    const std::string_view character = word.substr(0, first.bytes);
    word.remove_prefix(first.bytes);
    if (const std::int32_t token = token_of(first.code_point); token != kNoToken) {
      put_unknown();
      tokens.push_back(token);
    } else if (!append_bytes(character, tokens)) {
      if (!unknown_) refuse(character);
      if (!fuse_unknown_) put_unknown();
      unknown_waits = true;
    }
  }
  put_unknown();
}

void Bpe::refuse(std::string_view character) const {
  std::string message =
      fmt::format("the tokenizer's vocabulary has no token for '{}' (U+{:04X})", character,
                  static_cast<std::uint32_t>(first_character(character).code_point));
  if (byte_alphabet_)
    if (const std::optional<std::string> byte = characters_to_bytes(character))
      message += fmt::format(", which stands for the byte {:02X}",
                             static_cast<unsigned char>(byte->front()));
  throw input_error(message);
}

std::size_t Bpe::merge_few(std::span<std::int32_t> tokens) const {
  std::size_t count = tokens.size();
  std::array<MergeTable::RankedResult, kFewTokens> merges;  // of token i and the next one
  const auto look_up = [&](std::size_t i) {
    const MergeTable::RankedResult* found = merges_.find(tokens[i], tokens[i + 1]);
    merges[i] = found ? *found : MergeTable::RankedResult{kNoRank, kNoToken};
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNoRank) break;

    tokens[best] = merges[best].result;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

std::size_t Bpe::merge_many(std::span<std::int32_t> tokens) const {
  // The word is a doubly linked list over `tokens`: a merge writes its result over the left token
  // and unlinks the right one. A candidate is out of date when its tokens are no longer there.
  const std::size_t end = tokens.size();
  std::vector<std::size_t> next(end);
  std::vector<std::size_t> previous(end);
  std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> candidates;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (const MergeTable::RankedResult* found = merges_.find(tokens[left], tokens[right]))
      candidates.push({found->rank, left, {tokens[left], tokens[right], found->result}});
  };
  for (std::size_t i = 0; i < end; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // never followed from 0
    if (i + 1 < end) consider(i, i + 1);
  }

  while (!candidates.empty()) {
    const auto [rank, left, merge] = candidates.top();
    candidates.pop();
    if (tokens[left] != merge.left) continue;
    const std::size_t right = next[left];
    if (right == end || tokens[right] != merge.right) continue;

    tokens[left] = merge.result;
    tokens[right] = kNoToken;
    next[left] = next[right];
    if (next[left] != end) {
      previous[next[left]] = left;
      consider(left, next[left]);
    }
    if (left != 0) consider(previous[left], left);
  }
  const auto kept = std::remove(tokens.begin(), tokens.end(), kNoToken);
  return static_cast<std::size_t>(kept - tokens.begin());
}

}  // namespace tp

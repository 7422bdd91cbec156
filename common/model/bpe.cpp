#include "common/model/bpe.h"

#include <queue>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

constexpr std::int32_t kNoToken = -1;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// A merge that may happen between the tokens at `position` and behind it.
struct Candidate {
  std::size_t rank = 0;
  std::size_t position = 0;
  Merge merge;
};

// Orders a priority queue so that its top is the lowest rank, leftmost among equals.
struct ComesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
  }
};

}  // namespace

Bpe::Bpe(Parts parts) : vocab_(std::move(parts.vocab)), ignore_merges_(parts.ignore_merges) {
  for (const auto& [token, id] : vocab_) {
    if (token.empty()) continue;
    const Utf8Character first = first_character(token);
    if (first.kind != Utf8Character::Kind::valid || first.bytes != token.size()) continue;
    if (first.code_point >= token_of_code_point_.size())
      token_of_code_point_.resize(first.code_point + 1, kNoToken);
    token_of_code_point_[first.code_point] = id;
  }
  merges_.reserve(parts.merges.size());
  for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const Merge& merge = parts.merges[rank];
    merges_[key_of(merge.left, merge.right)] = {rank, merge.result};
  }
}

void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = vocab_.find(word); whole != vocab_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<std::int32_t> tokens = characters_to_tokens(word);
  merge_neighbours(tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

std::vector<std::int32_t> Bpe::characters_to_tokens(std::string_view word) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(word.size());
  while (!word.empty()) {
    const Utf8Character character = first_character(word);
    const bool known = character.code_point < token_of_code_point_.size();
    const std::int32_t token = known ? token_of_code_point_[character.code_point] : kNoToken;
    if (token == kNoToken)
      throw input_error(fmt::format("the tokenizer's vocabulary has no token for '{}' (U+{:04X})",
                                    word.substr(0, character.bytes),
                                    static_cast<std::uint32_t>(character.code_point)));
    tokens.push_back(token);
    word.remove_prefix(character.bytes);
  }
  return tokens;
}

const Bpe::RankedResult* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::merge_neighbours(std::vector<std::int32_t>& tokens) const {
  // The word is a doubly linked list over `tokens`: a merge writes its result over the left token
  // and unlinks the right one. A candidate is out of date when its tokens are no longer there.
  const std::size_t end = tokens.size();
  std::vector<std::size_t> next(end);
  std::vector<std::size_t> previous(end);
  std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> candidates;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (const RankedResult* found = find_merge(tokens[left], tokens[right]))
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
  std::erase(tokens, kNoToken);
}

}  // namespace tp

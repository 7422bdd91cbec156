// Added tokens: fixed texts such as <|endoftext|> that become one token wherever they stand.
// [introduced in chapter 06]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;      // not empty
  bool special = false;     // decoding can leave it out
  bool lstrip = false;      // takes the white space on its left, too
  bool rstrip = false;      // takes the white space on its right, too
  bool normalized = false;  // looked for in the normalised text, after all tokens that are not
};

// A stretch of text: an added token if there is an id, else text still to be encoded.
struct Segment {
  std::string_view text;
  std::optional<std::int32_t> id;
};

// Finds the texts of a set of tokens.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  // Cuts `text` at each token, from left to right, the longest one where several begin (the earlier
  // one in the list if they are equal). No segment is empty; their texts are views into `text`.
  // As with Hugging Face's tokenizers, white space that a token takes on its right is still looked
  // through for tokens.
  std::vector<Segment> split(std::string_view text) const;

 private:
  const AddedToken* longest_at_front(std::string_view text) const;

  std::array<std::vector<AddedToken>, 256> tokens_of_first_byte_;  // longest first
};

}  // namespace tp

#include "common/model/split_pattern.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/core/error.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

Error pattern_error(std::string_view pattern, std::string_view what) {
  return input_error(fmt::format("the pattern '{}': {}", pattern, what));
}

std::string message_of(int error_code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error_code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// \s is Unicode's White_Space in Oniguruma; PCRE2's own also holds U+180E.
std::string to_pcre2(std::string_view pattern) {
  constexpr std::string_view kSameInBoth = "pPdDrnt";
  std::string translated;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    translated += pattern[i];
    if (pattern[i] != '\\' || i + 1 == pattern.size()) continue;
    const char escape = pattern[++i];
    if (escape == 's')
      translated += "p{White_Space}";
    else if (escape == 'S')
      translated += "P{White_Space}";
    else if (!is_letter_or_digit(escape) || kSameInBoth.find(escape) != std::string_view::npos)
      translated += escape;
    else
      throw pattern_error(pattern, fmt::format("the escape \\{} is not supported", escape));
  }
  return translated;
}

Code compile(const std::string& pattern) {
  const std::string translated = to_pcre2(pattern);
  // MULTILINE: in Oniguruma, ^ and $ stand at the ends of every line.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error_code = 0;
  std::size_t error_offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          kOptions, &error_code, &error_offset, nullptr));
  if (!code) throw pattern_error(pattern, message_of(error_code));
  // Only for speed: where machine code cannot be made, pcre2_match interprets.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct SplitPattern::Compiled {
  std::string pattern;
  Code code;
};

SplitPattern::SplitPattern(const std::string& pattern)
    : compiled_(std::make_shared<Compiled>(Compiled{pattern, compile(pattern)})) {}

void SplitPattern::split(std::string_view text, std::vector<std::string>& pieces) const {
  const pcre2_code* code = compiled_->code.get();
  const MatchData match(pcre2_match_data_create_from_pattern(code, nullptr));
  const auto find = [&](std::size_t from, std::uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, match.get(), nullptr);
  };

  std::size_t piece_begin = 0;
  const auto cut = [&](std::size_t position) {
    if (position > piece_begin)
      pieces.emplace_back(text.substr(piece_begin, position - piece_begin));
    piece_begin = std::max(piece_begin, position);
  };
  for (std::size_t from = 0; from < text.size();) {
    int found = find(from, 0);
    // The machine code has a small stack of its own, the interpreter uses the heap.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(from, PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) throw pattern_error(compiled_->pattern, message_of(found));

    const std::size_t begin = pcre2_get_ovector_pointer(match.get())[0];
    const std::size_t end = pcre2_get_ovector_pointer(match.get())[1];
    cut(begin);
    cut(end);
    from = end;
    if (begin == end && end < text.size()) from += first_character(text.substr(end)).bytes;
  }
  cut(text.size());
}

}  // namespace tp

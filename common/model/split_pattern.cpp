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

// Reads a pattern as Oniguruma does and writes it for PCRE2.
class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern), rest_(pattern) {}

  std::string result() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\')
        take_escape();
      else if (in_class_)
        take_in_class();
      else if (c == '[')
        begin_class();
      else if (c == '(')
        take_group();
      else if (c == '{')
        take_repetition();
      else
        take(1);
    }
    return std::move(translated_);
  }

 private:
  [[noreturn]] void refuse(std::string_view kind, std::string_view part) const {
    throw pattern_error(pattern_, fmt::format("{} {} is not supported", kind, part));
  }

  void take(std::size_t bytes) {
    translated_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }

  // \s is Unicode's White_Space in Oniguruma; PCRE2's own also holds U+180E.
  void take_escape() {
    constexpr std::string_view kSameInBoth = "pPdDrnt";
    const char escape = rest_.size() > 1 ? rest_[1] : '\\';
    if (escape == 's' || escape == 'S') {
      translated_ += escape == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      rest_.remove_prefix(2);
    } else if (!is_letter_or_digit(escape) || kSameInBoth.find(escape) != std::string_view::npos) {
      const bool has_name = (escape == 'p' || escape == 'P') && rest_.substr(2).starts_with('{');
      take(has_name ? std::min(rest_.find('}'), rest_.size() - 1) + 1 : 2);
    } else {
      refuse("the escape", rest_.substr(0, 2));
    }
  }

  void begin_class() {
    take(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with(']')) refuse("the class", "[]");
    in_class_ = true;
  }

  // For Oniguruma, [a[b]] is a class in a class and && is an intersection.
  void take_in_class() {
    if (rest_.starts_with('[')) refuse("in a class,", "[");
    if (rest_.starts_with("&&")) refuse("in a class,", "&&");
    in_class_ = !rest_.starts_with(']');
    take(1);
  }

  // Letters of options mean other things, (*VERB) is PCRE2's own.
  void take_group() {
    constexpr std::array<std::string_view, 7> kSameInBoth{"(?:",  "(?i:", "(?=", "(?!",
                                                          "(?<=", "(?<!", "(?>"};
    const auto begins = [&](std::string_view group) { return rest_.starts_with(group); };
    if (begins("(*") || (begins("(?") && std::ranges::none_of(kSameInBoth, begins)))
      refuse("the group", rest_.substr(0, 3));
    take(begins("(?") ? 2 : 1);
  }

  // {2}, {2,} or {2,3}. For Oniguruma, {,3} has a meaning, and {2}+ is {2} repeated.
  void take_repetition() {
    const std::size_t end = std::min(rest_.find('}'), rest_.size() - 1);
    const std::string_view inner = rest_.substr(1, end - 1);
    const std::size_t digits = std::min(inner.find_first_not_of("0123456789"), inner.size());
    const std::string_view rest_of_inner = inner.substr(digits);
    const bool well_formed =
        rest_[end] == '}' && digits > 0 &&
        (rest_of_inner.empty() ||
         (rest_of_inner.front() == ',' &&
          rest_of_inner.find_first_not_of("0123456789", 1) == std::string_view::npos));
    const std::string_view after = rest_.substr(end + 1, 1);
    if (!well_formed || after == "+" || after == "?" || after == "*")
      refuse("the repetition", rest_.substr(0, end + 2));
    take(end + 1);
  }

  std::string_view pattern_;
  std::string_view rest_;
  std::string translated_;
  bool in_class_ = false;
};

Code compile(const std::string& pattern) {
  const std::string translated = Translation(pattern).result();
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

#include "common/model/jinja_texts.h"

#include <algorithm>
#include <cstddef>

namespace tp {
namespace {

// "\\n", as it is written in a template, is a line feed.
char resolved(char escaped) {
  switch (escaped) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return escaped;  // a quote or a backslash
  }
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class Scanner {
 public:
  explicit Scanner(std::string_view jinja) : rest_(jinja) {}

  JinjaTexts scan() {
    while (!rest_.empty()) {
      take_between_tags();
      if (rest_.empty()) break;
      if (rest_.starts_with("{#"))
        skip_comment();
      else
        take_tag();
    }
    return std::move(texts_);
  }

 private:
  void take_between_tags() {
    std::size_t end = 0;
    while (end < rest_.size() && !begins_tag(rest_.substr(end))) ++end;
    std::string_view between = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (between.empty()) return;

    // What is stripped: all blanks at a minus sign, the line end behind a statement or a comment,
    // and the one at the end of the template.
    if (behind_statement_ && between.starts_with('\n')) between.remove_prefix(1);
    if (rest_.empty() && between.ends_with('\n')) between.remove_suffix(1);
    if (stripped_by_tag_before_ || (rest_.size() > 2 && rest_[2] == '-'))
      while (!between.empty() && is_blank(between.front())) between.remove_prefix(1);
    if (rest_.starts_with("{%") || rest_.starts_with("{#"))
      while (between.ends_with(' ') || between.ends_with('\t')) between.remove_suffix(1);
    if (!between.empty()) texts_.prints_between_tags = true;
  }

  static bool begins_tag(std::string_view text) {
    return text.starts_with("{{") || text.starts_with("{%") || text.starts_with("{#");
  }

  void skip_comment() {
    const std::size_t end = std::min(rest_.find("#}"), rest_.size());
    leave_tag(end, true);
  }

  void take_tag() {
    const bool statement = rest_.starts_with("{%");
    const std::string_view end_mark = statement ? "%}" : "}}";
    std::size_t i = 2;
    while (i < rest_.size() && !rest_.substr(i).starts_with(end_mark)) {
      if (rest_[i] == '\'' || rest_[i] == '"')
        i = take_quoted(i);
      else
        texts_.program += rest_[i++];
    }
    texts_.program += ' ';
    leave_tag(i, statement);
  }

  // Returns where the text behind the closing quote begins.
  std::size_t take_quoted(std::size_t begin) {
    const char quote = rest_[begin];
    std::string text;
    std::size_t i = begin + 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      const bool escapes = rest_[i] == '\\' && i + 1 < rest_.size();
      text += escapes ? resolved(rest_[++i]) : rest_[i];
    }
    texts_.quoted.push_back(std::move(text));
    return std::min(i + 1, rest_.size());
  }

  // `end` is where the two closing characters stand.
  void leave_tag(std::size_t end, bool statement) {
    stripped_by_tag_before_ = end > 0 && rest_[end - 1] == '-';
    behind_statement_ = statement;
    rest_.remove_prefix(std::min(end + 2, rest_.size()));
  }

  std::string_view rest_;
  JinjaTexts texts_;
  bool stripped_by_tag_before_ = false;
  bool behind_statement_ = false;
};

}  // namespace

JinjaTexts texts_of_template(std::string_view jinja) {
  return Scanner(jinja).scan();
}

}  // namespace tp

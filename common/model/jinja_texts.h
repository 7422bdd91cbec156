// The texts that a Jinja template holds; the program between them is not run.
// [introduced in chapter 06]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tp {

struct JinjaTexts {
  std::vector<std::string> quoted;   // 'like\n' and "these", their escapes resolved
  std::string program;               // the tags without the quoted texts and comments
  bool prints_between_tags = false;  // text outside of tags comes out, be it white space
};

// Takes a template apart as Hugging Face's transformers would run it: a line end behind a
// statement, and blanks before one, are no text. Anything may be given; what is no template has
// texts and program of some kind, too.
JinjaTexts texts_of_template(std::string_view jinja);

}  // namespace tp

#include "common/engine/prompt_file.h"

#include <sstream>

#include "tests/catch.h"

using namespace tp;

namespace {

std::vector<PromptLine> read(const std::string& text) {
  std::istringstream stream(text);
  return read_prompt_lines(stream, "p.txt");
}

}  // namespace

TEST_CASE("each line is a prompt and empty lines do not count") {
  const auto lines = read("She had been\r\n\n  two blanks before\n[1, 2] no object\nthe last");
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].prompt == "She had been");
  CHECK(lines[1].prompt == "  two blanks before");
  CHECK(lines[1].place == "p.txt:3");
  CHECK(lines[2].prompt == "[1, 2] no object");
  CHECK(lines[3].prompt == "the last");
  for (const PromptLine& line : lines) CHECK(line.error.empty());
  CHECK(read("").empty());
}

TEST_CASE("a line of JSON sets what it names and nothing else") {
  const auto lines = read(
      R"({"prompt": "a\nb", "max_tokens": 5, "temperature": 0.5, "top_k": 7, "top_p": 0.25, "seed": 9,)"
      R"( "ignore_eos": true})"
      "\n"
      R"(  { "prompt_ids": [3, 1, 4] })");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].prompt == "a\nb");
  CHECK(lines[0].max_tokens == 5);
  CHECK(lines[0].temperature == 0.5);
  CHECK(lines[0].top_k == 7);
  CHECK(lines[0].top_p == 0.25);
  CHECK(lines[0].seed == 9);
  CHECK(lines[0].ignore_eos == true);
  CHECK(lines[1].prompt_ids == std::vector<std::int32_t>{3, 1, 4});
  CHECK_FALSE(lines[1].prompt.has_value());
  CHECK_FALSE(lines[1].seed.has_value());
}

TEST_CASE("a byte order mark before the first line is no part of it") {
  CHECK(read("\xEF\xBB\xBF"
             "one\ntwo")[0]
            .prompt == "one");
  CHECK(read("\xEF\xBB\xBF"
             R"({"prompt": "one"})")[0]
            .prompt == "one");
}

TEST_CASE("a wrong line says what is wrong and leaves the others alone") {
  const auto lines = read(
      "good\n"
      "{\"prompt\": \"x\", \n"
      "{\"prompt\": 3, \"max_tokens\": \"many\", \"n\": 2}\n"
      "{\"max_tokens\": 3}\n"
      "{\"prompt\": \"x\", \"prompt_ids\": [1]}\n"
      "{\"prompt\": \"x\", \"prompt\": \"y\"}\n"
      "{\"prompt_ids\": [-1]}\n"
      "also good\n");
  REQUIRE(lines.size() == 8);
  CHECK(lines[0].error.empty());
  CHECK(lines[7].error.empty());
  CHECK_THAT(lines[1].error, ContainsSubstring("the line: no valid JSON"));
  CHECK_THAT(lines[2].error, ContainsSubstring("prompt = 3: must be a text") &&
                                 ContainsSubstring("max_tokens = \"many\"") &&
                                 ContainsSubstring("unknown key \"n\"; known are prompt"));
  CHECK_THAT(lines[3].error, ContainsSubstring("needs prompt or prompt_ids, and not both"));
  CHECK_THAT(lines[4].error, ContainsSubstring("needs prompt or prompt_ids, and not both"));
  CHECK_THAT(lines[5].error, ContainsSubstring("twice"));
  CHECK_THAT(lines[6].error, ContainsSubstring("prompt_ids = [-1]"));
}

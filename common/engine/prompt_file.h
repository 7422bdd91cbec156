// Many requests from one text. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace tp {

// One line of a prompt file. What it does not say is up to the command line.
struct PromptLine {
  std::string place;  // "prompts.txt:3", for messages
  std::optional<std::string> prompt;
  std::vector<std::int32_t> prompt_ids;  // instead of the text
  std::optional<std::int64_t> max_tokens, top_k, seed;
  std::optional<double> temperature, top_p;
  std::optional<bool> ignore_eos;
  std::string error;  // why the line is no request; the other fields mean nothing then
};

// Each line is a prompt, or, if it begins with {, a JSON object, such as
// {"prompt": "It was", "max_tokens": 20, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 3,
// "ignore_eos": true} or {"prompt_ids": [1, 2, 3]}. Empty lines do not count. A wrong line becomes an
// entry with an error, so that the other ones can run.
// Errors: tp::Error (input) naming the file if reading fails.
std::vector<PromptLine> read_prompt_lines(std::istream& text, const std::string& name);

}  // namespace tp

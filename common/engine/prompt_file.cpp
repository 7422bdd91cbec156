#include "common/engine/prompt_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/json.h"
#include "common/model/json_object.h"

namespace tp {

namespace {

constexpr std::array<std::string_view, 8> kKeys{
    "prompt", "prompt_ids", "max_tokens", "top_k", "seed", "temperature", "top_p", "ignore_eos"};
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

bool is_json(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first != std::string_view::npos && line[first] == '{';
}

// The values themselves are checked where requests are checked; here only their types are.
void read_object(const std::string& line, PromptLine& request) {
  Problems problems;
  const nlohmann::json json = parse_json(line, "the line");
  const JsonObject keys(json, "the line", problems);
  constexpr Limits<std::int64_t> kAnyWhole{-kMaxInt, kMaxInt};
  constexpr Limits<double> kAnyNumber{-1e9, 1e9};
  for (const std::string& key : keys.keys())
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      problems.add(fmt::format("unknown key \"{}\"; known are {}", key, fmt::join(kKeys, ", ")));
  request.prompt = keys.text("prompt");
  for (const std::int64_t id : keys.whole_list("prompt_ids", {0, kMaxInt}))
    request.prompt_ids.push_back(static_cast<std::int32_t>(id));
  if (keys.has("prompt") == keys.has("prompt_ids"))
    problems.add("needs prompt or prompt_ids, and not both");
  request.max_tokens = keys.whole("max_tokens", kAnyWhole);
  request.top_k = keys.whole("top_k", kAnyWhole);
  request.seed = keys.whole("seed", {0, std::numeric_limits<std::int64_t>::max()});
  request.temperature = keys.number("temperature", kAnyNumber);
  request.top_p = keys.number("top_p", kAnyNumber);
  request.ignore_eos = keys.boolean("ignore_eos");
  request.error = problems.text();
}

}  // namespace

std::vector<PromptLine> read_prompt_lines(std::istream& text, const std::string& name) {
  std::vector<PromptLine> requests;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    PromptLine& request = requests.emplace_back();
    request.place = fmt::format("{}:{}", name, number);
    if (!is_json(line)) {
      request.prompt = line;
      continue;
    }
    try {
      read_object(line, request);
    } catch (const Error& e) {
      request.error = e.what();
    }
  }
  if (text.bad()) throw input_error(fmt::format("{}: cannot be read", name));
  return requests;
}

}  // namespace tp

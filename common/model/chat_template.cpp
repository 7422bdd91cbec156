#include "common/model/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/jinja_texts.h"
#include "common/model/json.h"
#include "common/model/mapped_file.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

using nlohmann::json;

// What a folder says about chats.
struct FolderSays {
  std::string file;           // where the template stands
  std::string jinja;          // empty: there is none
  std::string begin_of_text;  // empty: not given
};

// A special token is a text, or an object with one.
std::string special_token_text(const json& token) {
  const json& text = token.is_object() ? token.value("content", json()) : token;
  return text.is_string() ? text.get<std::string>() : "";
}

// A template, or of a list of named ones that called "default".
std::string text_of_template(const json& value, const std::string& file) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array())
    for (const json& named : value)
      if (named.is_object() && named.value("name", json()) == "default" &&
          named.value("template", json()).is_string())
        return named["template"].get<std::string>();
  if (value.is_null()) return "";
  throw input_error(
      fmt::format("{}: chat_template = {}: must be a text, or a list with one named "
                  "\"default\"",
                  file, describe(value)));
}

FolderSays read_folder(const std::filesystem::path& folder) {
  FolderSays says;
  std::error_code ignored;
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_file, ignored)) {
    const json config = read_json(config_file);
    if (config.is_object()) {
      says.begin_of_text = special_token_text(config.value("bos_token", json()));
      says.file = config_file.string();
      says.jinja = text_of_template(config.value("chat_template", json()), says.file);
    }
  }
  // Newer folders have the template in a file of its own.
  const std::filesystem::path jinja_file = folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja_file, ignored)) {
    says.file = jinja_file.string();
    says.jinja = MappedFile(jinja_file).text();
  }
  return says;
}

// A model's template, and what is unknown about it.
class KnownTemplate {
 public:
  explicit KnownTemplate(const FolderSays& says)
      : file_(says.file), texts_(texts_of_template(says.jinja)) {}

  bool quotes(std::string_view text) const {
    return std::ranges::find(texts_.quoted, text) != texts_.quoted.end();
  }
  bool uses(std::string_view name) const { return texts_.program.find(name) != std::string::npos; }
  const std::vector<std::string>& quoted() const { return texts_.quoted; }
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw input_error(fmt::format(
        "{}: the chat_template is of no kind known here ({}): {}; leave --chat out and write the "
        "prompt as the template would, special tokens spelled out but for the one that begins the "
        "text",
        file_, fmt::join(ChatTemplate::names(), ", "), reason));
  }

  // What no known kind has.
  void check_common() const {
    if (texts_.prints_between_tags) refuse("it prints text that stands outside of its tags");
  }

  // An answer begins with this text and nothing more.
  void check_answer_begins_with(std::string_view text, std::string_view prefix) const {
    if (!quotes(text)) refuse(fmt::format("it does not begin an answer with {}", describe(text)));
    for (const std::string& other : quoted())
      if (other.starts_with(prefix) && other != text)
        refuse(fmt::format("it may begin an answer with {}", describe(other)));
    if (quotes("<think>\n")) refuse("it may begin an answer with \"<think>\\n\"");
  }

 private:
  std::string file_;
  JinjaTexts texts_;
};

constexpr std::string_view kChatmlAnswer = "<|im_start|>assistant\n";
constexpr std::string_view kLlama3Answer = "<|start_header_id|>assistant<|end_header_id|>\n\n";

// A template of the other known kind.
void check_chosen(const KnownTemplate& known,
                  std::string_view answer,
                  std::string_view other_answer,
                  std::string_view other_name) {
  if (!known.quotes(answer) && known.quotes(other_answer))
    throw input_error(
        fmt::format("{}: the chat_template is of another kind: choose it with --chat {}",
                    known.file(), other_name));
}

ChatParts chatml_parts() {
  return {.before_role = "<|im_start|>", .after_role = "\n", .end_of_turn = "<|im_end|>\n"};
}

// The system text that the template writes if there is none: the text between these two.
std::optional<std::string> default_system_of(const KnownTemplate& known) {
  constexpr std::string_view kBegin = "<|im_start|>system\n", kEnd = "<|im_end|>\n";
  std::optional<std::string> system;
  for (const std::string& text : known.quoted()) {
    if (!text.starts_with(kBegin) || text.size() == kBegin.size()) continue;
    const std::string_view rest = std::string_view(text).substr(kBegin.size());
    const std::size_t end = rest.find("<|");
    if (end == std::string_view::npos || rest.substr(end) != kEnd)
      known.refuse(fmt::format("it has a system text of another form, {}", describe(text)));
    if (system && *system != rest.substr(0, end)) known.refuse("it has two system texts");
    system = rest.substr(0, end);
  }
  return system;
}

ChatParts chatml_parts(const KnownTemplate& known) {
  check_chosen(known, kChatmlAnswer, kLlama3Answer, "llama3");
  known.check_common();
  known.check_answer_begins_with(kChatmlAnswer, "<|im_start|>assistant");
  for (const char* name : {"bos_token", "strftime_now", "trim", "set system"})
    if (known.uses(name)) known.refuse(fmt::format("it uses {}", name));
  ChatParts parts = chatml_parts();
  parts.system = default_system_of(known);
  return parts;
}

ChatParts llama3_parts(const std::string& begin_of_text) {
  return {.begin = begin_of_text.empty() ? "<|begin_of_text|>" : begin_of_text,
          .before_role = "<|start_header_id|>",
          .after_role = "<|end_header_id|>\n\n",
          .end_of_turn = "<|eot_id|>",
          .trims = true};
}

// Llama 3.1 and later: two dates before every system text.
std::string dates_of(const KnownTemplate& known, const std::string& today) {
  constexpr std::string_view kKnowledge = "Cutting Knowledge Date: December 2023\n";
  constexpr std::string_view kFixedDate = "26 Jul 2024";
  constexpr std::string_view kSystem = "<|start_header_id|>system<|end_header_id|>\n\n";
  for (const std::string& text : known.quoted())
    if (text.starts_with("<|start_header_id|>system") && text != kSystem)
      known.refuse(fmt::format("it has a system text of its own, {}", describe(text)));
  if (!known.quotes(kSystem)) return "";
  if (!known.quotes(kKnowledge) || !known.quotes("Today Date: ") || !known.quotes(kFixedDate))
    known.refuse("it writes a system turn by itself, other than that of Llama 3.1");
  return fmt::format("{}Today Date: {}\n\n", kKnowledge,
                     known.uses("strftime_now") ? today : kFixedDate);
}

ChatParts llama3_parts(const KnownTemplate& known,
                       const std::string& begin_of_text,
                       const std::string& today) {
  check_chosen(known, kLlama3Answer, kChatmlAnswer, "chatml");
  known.check_common();
  known.check_answer_begins_with(kLlama3Answer, "<|start_header_id|>assistant");
  if (!known.uses("bos_token")) known.refuse("it does not use bos_token");
  ChatParts parts = llama3_parts(begin_of_text);
  parts.before_system = dates_of(known, today);
  parts.trims = known.uses("trim");
  return parts;
}

void check_tokens(const std::string& name,
                  const Tokenizer& tokenizer,
                  std::initializer_list<std::string_view> tokens) {
  for (const std::string_view token : tokens)
    if (!tokenizer.token_to_id(token))
      throw input_error(
          fmt::format("--chat {}: the model's vocabulary has no token {}: it was not "
                      "trained on such chats",
                      name, token));
}

// As Python does it, for which the separators U+001C to U+001F are white space, too.
std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); };
  std::size_t begin = text.size();
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Character character = first_character(text.substr(i));
    const bool valid = character.kind == Utf8Character::Kind::valid;
    if (!valid || !is_blank(character.code_point)) {
      begin = std::min(begin, i);
      end = i + character.bytes;
    }
    i += character.bytes;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

}  // namespace

const std::vector<std::string>& ChatTemplate::names() {
  static const std::vector<std::string> names{"chatml", "llama3"};
  return names;
}

ChatTemplate ChatTemplate::choose(const std::string& name,
                                  const std::filesystem::path& folder,
                                  const Tokenizer& tokenizer,
                                  const std::string& today) {
  if (std::ranges::find(names(), name) == names().end())
    throw input_error(fmt::format("--chat {}: must be one of {}", name, fmt::join(names(), ", ")));
  const FolderSays says = read_folder(folder);
  if (name == "chatml") {
    check_tokens(name, tokenizer, {"<|im_start|>", "<|im_end|>"});
    return ChatTemplate(says.jinja.empty() ? chatml_parts() : chatml_parts(KnownTemplate(says)));
  }
  ChatParts parts = says.jinja.empty()
                        ? llama3_parts(says.begin_of_text)
                        : llama3_parts(KnownTemplate(says), says.begin_of_text, today);
  check_tokens(name, tokenizer,
               {parts.begin, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  return ChatTemplate(std::move(parts));
}

ChatTemplate::ChatTemplate(ChatParts parts) : parts_(std::move(parts)) {}

std::string ChatTemplate::prompt(std::string_view user,
                                 const std::optional<std::string>& system) const {
  std::string prompt = parts_.begin;
  const std::optional<std::string>& system_text = system ? system : parts_.system;
  if (system_text || !parts_.before_system.empty()) {
    const std::string text = system_text.value_or("");
    const std::string_view kept = parts_.trims ? trimmed(text) : text;
    append_turn("system", parts_.before_system + std::string(kept), prompt);
  }
  append_turn("user", parts_.trims ? trimmed(user) : user, prompt);
  return prompt + parts_.before_role + "assistant" + parts_.after_role;
}

void ChatTemplate::append_turn(std::string_view role,
                               std::string_view text,
                               std::string& prompt) const {
  for (const std::string_view part : std::array<std::string_view, 5>{
           parts_.before_role, role, parts_.after_role, text, parts_.end_of_turn})
    prompt += part;
}

std::string ChatTemplate::date_today() {
  constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  localtime_r(&now, &date);
  return fmt::format("{:02} {} {}", date.tm_mday, kMonths.at(static_cast<std::size_t>(date.tm_mon)),
                     date.tm_year + 1900);
}

}  // namespace tp

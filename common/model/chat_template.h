// From a question to the prompt that a chat model was trained on. [introduced in chapter 06]
//
// A chat model goes on with a conversation that is written down in one certain way, its turns
// marked by special tokens. Model folders say how in a program of their own, the chat_template of
// tokenizer_config.json, written in the language Jinja. Here the two most used ways are built in,
// and the model's program is only looked at: whether it is one of them, and what it says by itself.
//
//   chatml (Qwen, SmolLM2, ...)      llama3
//   <|im_start|>system               <|begin_of_text|><|start_header_id|>system<|end_header_id|>
//   You are ...<|im_end|>
//   <|im_start|>user                 You are ...<|eot_id|><|start_header_id|>user<|end_header_id|>
//   Hello<|im_end|>
//   <|im_start|>assistant            Hello<|eot_id|><|start_header_id|>assistant<|end_header_id|>
//   ...                              ...
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/tokenizer.h"

namespace tp {

// What templates of the known kinds are made of. A turn is before_role, role, after_role, text,
// end_of_turn.
struct ChatParts {
  std::string begin;  // before all turns
  std::string before_role;
  std::string after_role;
  std::string end_of_turn;
  std::string before_system;          // in the system turn, which every prompt has then
  std::optional<std::string> system;  // if nothing else is given
  bool trims = false;                 // white space around texts is left out
};

class ChatTemplate {
 public:
  static const std::vector<std::string>& names();  // "chatml", "llama3"

  // The template of this name as the model in `folder` has it. A system text that the model's own
  // template writes by itself is used; without a template of its own there is none. The templates of
  // Llama 3.1 and later also write dates, some of them `today`'s: "26 Jul 2024".
  // Errors:   tp::Error (input) if there is no such name, if the vocabulary lacks its special
  //           tokens, or if the model's template is of another kind or has parts that are not known
  //           here: another prompt than in training makes worse answers, and nobody would see why.
  static ChatTemplate choose(const std::string& name,
                             const std::filesystem::path& folder,
                             const Tokenizer& tokenizer,
                             const std::string& today = date_today());

  // The prompt for one question. Its special tokens are spelled out, so it is to be encoded without
  // adding any. A special token that is spelled in a text of the user becomes one, too, as with
  // Hugging Face's transformers: texts of people who are not trusted have to be searched for them.
  std::string prompt(std::string_view user, const std::optional<std::string>& system) const;

  // "05 Mar 2025", in local time.
  static std::string date_today();

 private:
  explicit ChatTemplate(ChatParts parts);
  void append_turn(std::string_view role, std::string_view text, std::string& prompt) const;

  ChatParts parts_;
};

}  // namespace tp

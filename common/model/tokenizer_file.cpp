#include "common/model/tokenizer_file.h"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/json.h"
#include "common/model/tokenizer_keys.h"
#include "common/model/tokenizer_stages.h"

namespace tp {
namespace {

using nlohmann::json;

// Reads one file. Each function reads what stands under `where` and goes on after a problem.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : keys_(path.string()) {}
  TokenizerFile read(const json& root);

 private:
  void read_model(const json& model);
  void read_vocab(const json& vocab);
  void read_merges(const json& merges);
  void read_unknown(const json& unk_token);
  void read_added_tokens(const json& tokens);
  void read_added_token(const json& token, const std::string& where);
  void check_specials();
  bool take_id(std::int32_t id, std::string_view token);
  void refuse_taken_id(std::int32_t id, const std::string& where);

  TokenizerKeys keys_;
  TokenizerFile file_;
  std::unordered_map<std::int32_t, std::string_view> token_of_id_;  // in file_ and below
  std::unordered_set<std::string> added_contents_;
};

TokenizerFile Reader::read(const json& root) {
  read_model(member(root, "model"));
  read_added_tokens(member(root, "added_tokens"));
  const json& normalizer = member(root, "normalizer");
  const bool as_typed = normalizer.is_null() || has_type(normalizer, "NFC");
  file_.normalizer = read_normalizer(normalizer, keys_);
  file_.pre_tokenizer =
      read_pre_tokenizer(member(root, "pre_tokenizer"),
                         as_typed ? TextBefore::as_typed : TextBefore::rewritten, keys_);
  file_.specials = read_post_processor(member(root, "post_processor"), keys_);
  check_specials();
  file_.decoding = read_decoder(member(root, "decoder"), keys_);
  file_.model.byte_alphabet = file_.decoding.byte_level;
  keys_.throw_if_any();
  return std::move(file_);
}

void Reader::read_model(const json& model) {
  // Old files do not name the type.
  if (const json& type = member(model, "type"); !type.is_null() && type != "BPE")
    return keys_.refuse("model.type", type, "\"BPE\"");
  keys_.refuse_other_options(
      model, "model",
      {"type", "vocab", "merges", "ignore_merges", "byte_fallback", "unk_token", "fuse_unk"});
  file_.model.ignore_merges = keys_.flag(model, "model", "ignore_merges", false);
  file_.model.byte_fallback = keys_.flag(model, "model", "byte_fallback", false);
  file_.model.fuse_unknown = keys_.flag(model, "model", "fuse_unk", false);
  read_vocab(member(model, "vocab"));
  read_unknown(member(model, "unk_token"));
  read_merges(member(model, "merges"));
}

void Reader::read_unknown(const json& unk_token) {
  if (unk_token.is_null()) return;
  const Vocabulary& vocab = file_.model.vocab;
  if (vocab.empty()) return;  // a problem already
  const auto found =
      unk_token.is_string() ? vocab.find(unk_token.get_ref<const std::string&>()) : vocab.end();
  if (found == vocab.end())
    return keys_.refuse("model.unk_token", unk_token, "null or a token of model.vocab");
  file_.model.unknown = found->second;
}

void Reader::read_vocab(const json& vocab) {
  if (!vocab.is_object() || vocab.empty())
    return keys_.refuse("model.vocab", vocab, "an object with an id for each token");
  file_.model.vocab.reserve(vocab.size());
  token_of_id_.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const auto where = [&name = token] { return fmt::format("model.vocab[{}]", describe(name)); };
    const std::optional<std::int32_t> id = to_id(value);
    if (id) {
      const auto entry = file_.model.vocab.emplace(token, *id).first;
      if (!take_id(*id, entry->first)) refuse_taken_id(*id, where());
    } else {
      keys_.id(value, where());
    }
  }
}

// "a b" or ["a", "b"].
std::optional<std::pair<std::string, std::string>> parts_of_merge(const json& merge) {
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return {};
    return std::pair(text.substr(0, blank), text.substr(blank + 1));
  }
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  return {};
}

void Reader::read_merges(const json& merges) {
  if (!merges.is_array()) return keys_.refuse("model.merges", merges, "a list");
  const Vocabulary& vocab = file_.model.vocab;
  if (vocab.empty()) return;  // a problem already, and no merge can be right
  file_.model.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto refuse = [&](const char* right) {
      keys_.refuse(fmt::format("model.merges[{}]", i), merges[i], right);
    };
    const auto parts = parts_of_merge(merges[i]);
    if (!parts) {
      refuse("two tokens, \"a b\" or [\"a\", \"b\"]");
      continue;
    }
    const auto left = vocab.find(parts->first);
    const auto right = vocab.find(parts->second);
    const auto result = vocab.find(parts->first + parts->second);
    if (left == vocab.end() || right == vocab.end() || result == vocab.end())
      refuse("of tokens in model.vocab, both parts and what they make");
    else
      file_.model.merges.push_back({left->second, right->second, result->second});
  }
}

void Reader::read_added_tokens(const json& tokens) {
  if (tokens.is_null()) return;
  if (!tokens.is_array()) return keys_.refuse("added_tokens", tokens, "a list");
  for (std::size_t i = 0; i < tokens.size(); ++i)
    read_added_token(tokens[i], fmt::format("added_tokens[{}]", i));
}

void Reader::read_added_token(const json& token, const std::string& where) {
  const json& content = member(token, "content");
  if (!content.is_string() || content == "")
    return keys_.refuse(where + ".content", content, "a text that is not empty");
  keys_.refuse_other_options(token, where,
                             {"id", "content", "special", "lstrip", "rstrip", "normalized"});

  AddedToken added;
  added.content = content.get<std::string>();
  added.special = keys_.flag(token, where, "special", false);
  added.lstrip = keys_.flag(token, where, "lstrip", false);
  added.rstrip = keys_.flag(token, where, "rstrip", false);
  added.normalized = keys_.flag(token, where, "normalized", false);
  const std::optional<std::int32_t> id = keys_.id(member(token, "id"), where + ".id");
  if (!id) return;
  added.id = *id;
  const auto [entry, is_new] = added_contents_.insert(added.content);
  if (!is_new) return keys_.refuse(where + ".content", content, "there only once");

  const auto in_vocab = file_.model.vocab.find(added.content);
  if (in_vocab == file_.model.vocab.end()) {
    if (!take_id(added.id, *entry)) refuse_taken_id(added.id, where + ".id");
  } else if (in_vocab->second != added.id) {
    keys_.refuse(
        where + ".id", describe(added.id),
        fmt::format("{}, the id of {} in model.vocab", in_vocab->second, describe(content)));
  }
  file_.added_tokens.push_back(std::move(added));
}

void Reader::check_specials() {
  for (const auto* side : {&file_.specials.before, &file_.specials.after})
    for (const std::int32_t id : *side)
      if (!token_of_id_.contains(id))
        keys_.refuse("post_processor.special_tokens", describe(id), "the id of a token");
}

// False if another token has it. `token` must stay where it is.
bool Reader::take_id(std::int32_t id, std::string_view token) {
  return token_of_id_.emplace(id, token).second;
}

void Reader::refuse_taken_id(std::int32_t id, const std::string& where) {
  keys_.refuse(where, describe(id),
               fmt::format("an id of its own, {} has it", describe(token_of_id_.at(id))));
}

// A folder without a tokenizer.json may have the same tokenizer in a format that is not read.
void refuse_other_formats(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return;
  for (const char* name : {"tokenizer.model", "tekken.json", "vocab.json"})
    if (std::filesystem::exists(path.parent_path() / name, ignored))
      throw input_error(fmt::format(
          "{}: is missing, and {} beside it is not read; where the model comes from there may be a "
          "tokenizer.json, or make one with Hugging Face's Python library: "
          "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
          path.string(), name));
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  refuse_other_formats(path);
  return Reader(path).read(read_json(path));
}

}  // namespace tp

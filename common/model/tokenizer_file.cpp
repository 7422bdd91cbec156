#include "common/model/tokenizer_file.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/json.h"
#include "common/model/problems.h"

namespace tp {
namespace {

using nlohmann::json;

// The value of a key; null if there is no such key or `object` is none.
const json& member(const json& object, std::string_view key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool has_type(const json& object, std::string_view type) {
  return member(object, "type") == type;
}

// What an object such as a normalizer is called in error messages.
std::string name_of(const json& object) {
  const json& type = member(object, "type");
  return describe(type.is_string() ? type : object);
}

// null, false, zero or "".
bool is_off(const json& value) {
  return value.is_null() || value == false || value == "" || (value.is_number() && value == 0);
}

// Reads one file. Each function reads what stands under `where` and goes on after a problem.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path.string()) {}
  TokenizerFile read(const json& root);

 private:
  // "tokenizer.json: model.dropout = 0.1: must be off".
  void refuse(const std::string& where, const std::string& value, const std::string& right) {
    problems_.add(fmt::format("{}: {} = {}: must be {}", path_, where, value, right));
  }

  void read_model(const json& model);
  void read_vocab(const json& vocab);
  void read_merges(const json& merges);
  void read_added_tokens(const json& tokens);
  void read_added_token(const json& token, const std::string& where);
  void read_pre_tokenizer(const json& pre_tokenizer);
  void read_pre_tokenizer_step(const json& step, const std::string& where);
  void read_split(const json& split, const std::string& where);
  void read_byte_level(const json& byte_level, const std::string& where);

  std::optional<std::int32_t> read_id(const json& id, const std::string& where);
  bool read_flag(const json& object, const std::string& where, const char* key, bool if_missing);
  void refuse_other_options(const json& object,
                            const std::string& where,
                            std::initializer_list<std::string_view> known);
  void take_id(std::int32_t id, const std::string& token, const std::string& where);

  std::string path_;
  TokenizerFile file_;
  std::unordered_map<std::int32_t, std::string> token_of_id_;
  std::unordered_set<std::string> added_contents_;
  Problems problems_;
};

TokenizerFile Reader::read(const json& root) {
  read_model(member(root, "model"));
  read_added_tokens(member(root, "added_tokens"));
  read_pre_tokenizer(member(root, "pre_tokenizer"));
  if (const json& normalizer = member(root, "normalizer"); !normalizer.is_null())
    refuse("normalizer", name_of(normalizer), "null");
  if (const json& decoder = member(root, "decoder"); !has_type(decoder, "ByteLevel"))
    refuse("decoder", name_of(decoder), "\"ByteLevel\"");
  if (const json& post_processor = member(root, "post_processor");
      !post_processor.is_null() && !has_type(post_processor, "ByteLevel"))
    refuse("post_processor", name_of(post_processor), "null or \"ByteLevel\"");
  problems_.throw_if_any();
  return std::move(file_);
}

void Reader::read_model(const json& model) {
  // Old files do not name the type.
  if (const json& type = member(model, "type"); !type.is_null() && type != "BPE")
    return refuse("model.type", describe(type), "\"BPE\"");
  refuse_other_options(model, "model", {"type", "vocab", "merges", "ignore_merges"});
  file_.model.ignore_merges = read_flag(model, "model", "ignore_merges", false);
  read_vocab(member(model, "vocab"));
  read_merges(member(model, "merges"));
}

void Reader::read_vocab(const json& vocab) {
  if (!vocab.is_object() || vocab.empty())
    return refuse("model.vocab", describe(vocab), "an object with an id for each token");
  for (const auto& [token, id_value] : vocab.items()) {
    const std::string where = fmt::format("model.vocab[{}]", describe(token));
    if (const std::optional<std::int32_t> id = read_id(id_value, where)) {
      take_id(*id, token, where);
      file_.model.vocab.emplace(token, *id);
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
  if (!merges.is_array()) return refuse("model.merges", describe(merges), "a list");
  const Vocabulary& vocab = file_.model.vocab;
  if (vocab.empty()) return;  // a problem already, and no merge can be right
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::string where = fmt::format("model.merges[{}]", i);
    const auto parts = parts_of_merge(merges[i]);
    if (!parts) {
      refuse(where, describe(merges[i]), "two tokens, \"a b\" or [\"a\", \"b\"]");
      continue;
    }
    const auto left = vocab.find(parts->first);
    const auto right = vocab.find(parts->second);
    const auto result = vocab.find(parts->first + parts->second);
    if (left == vocab.end() || right == vocab.end() || result == vocab.end())
      refuse(where, describe(merges[i]), "of tokens in model.vocab, both parts and what they make");
    else
      file_.model.merges.push_back({left->second, right->second, result->second});
  }
}

void Reader::read_added_tokens(const json& tokens) {
  if (tokens.is_null()) return;
  if (!tokens.is_array()) return refuse("added_tokens", describe(tokens), "a list");
  for (std::size_t i = 0; i < tokens.size(); ++i)
    read_added_token(tokens[i], fmt::format("added_tokens[{}]", i));
}

void Reader::read_added_token(const json& token, const std::string& where) {
  const json& content = member(token, "content");
  if (!content.is_string() || content == "")
    return refuse(where + ".content", describe(content), "a text that is not empty");
  refuse_other_options(token, where,
                       {"id", "content", "special", "lstrip", "rstrip", "normalized"});

  AddedToken added;
  added.content = content.get<std::string>();
  added.special = read_flag(token, where, "special", false);
  added.lstrip = read_flag(token, where, "lstrip", false);
  added.rstrip = read_flag(token, where, "rstrip", false);
  added.normalized = read_flag(token, where, "normalized", false);
  const std::optional<std::int32_t> id = read_id(member(token, "id"), where + ".id");
  if (!id) return;
  added.id = *id;
  if (!added_contents_.insert(added.content).second)
    return refuse(where + ".content", describe(content), "there only once");

  const auto in_vocab = file_.model.vocab.find(added.content);
  if (in_vocab == file_.model.vocab.end())
    take_id(added.id, added.content, where + ".id");
  else if (in_vocab->second != added.id)
    refuse(where + ".id", describe(added.id),
           fmt::format("{}, the id of {} in model.vocab", in_vocab->second, describe(content)));
  file_.added_tokens.push_back(std::move(added));
}

void Reader::read_pre_tokenizer(const json& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return;
  if (!has_type(pre_tokenizer, "Sequence"))
    return read_pre_tokenizer_step(pre_tokenizer, "pre_tokenizer");
  const json& steps = member(pre_tokenizer, "pretokenizers");
  if (!steps.is_array()) return refuse("pre_tokenizer.pretokenizers", describe(steps), "a list");
  for (std::size_t i = 0; i < steps.size(); ++i)
    read_pre_tokenizer_step(steps[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i));
}

void Reader::read_pre_tokenizer_step(const json& step, const std::string& where) {
  if (has_type(step, "Split"))
    read_split(step, where);
  else if (has_type(step, "ByteLevel"))
    read_byte_level(step, where);
  else
    refuse(where, name_of(step), "\"Split\" or \"ByteLevel\"");
}

void Reader::read_split(const json& split, const std::string& where) {
  refuse_other_options(split, where, {"type", "pattern", "behavior"});
  if (const json& behavior = member(split, "behavior"); behavior != "Isolated")
    refuse(where + ".behavior", describe(behavior), "\"Isolated\"");
  const json& pattern = member(split, "pattern");
  const json& regex = member(pattern, "Regex");
  if (!regex.is_string())
    return refuse(where + ".pattern", describe(pattern), "{\"Regex\": \"...\"}");
  try {
    file_.pre_tokenizer.push_back(split_isolated(SplitPattern(regex.get<std::string>())));
  } catch (const Error& e) {
    problems_.add(fmt::format("{}: {}.pattern: {}", path_, where, e.what()));
  }
}

void Reader::read_byte_level(const json& byte_level, const std::string& where) {
  // trim_offsets only moves offsets.
  refuse_other_options(byte_level, where,
                       {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (read_flag(byte_level, where, "add_prefix_space", true))
    file_.pre_tokenizer.push_back(add_prefix_blank());
  if (read_flag(byte_level, where, "use_regex", true))
    file_.pre_tokenizer.push_back(split_isolated(SplitPattern(std::string(kGpt2Pattern))));
  file_.pre_tokenizer.push_back(write_bytes_as_characters());
}

std::optional<std::int32_t> Reader::read_id(const json& id, const std::string& where) {
  if (id.is_number_unsigned() && id.get<std::uint64_t>() < kTokenIdLimit)
    return id.get<std::int32_t>();
  refuse(where, describe(id), fmt::format("an id from 0 to {}", kTokenIdLimit - 1));
  return {};
}

bool Reader::read_flag(const json& object,
                       const std::string& where,
                       const char* key,
                       bool if_missing) {
  const json& value = member(object, key);
  if (value.is_null()) return if_missing;
  if (value.is_boolean()) return value.get<bool>();
  refuse(where + "." + key, describe(value), "true or false");
  return if_missing;
}

// An option that is not known here may change the ids, so it has to be off.
void Reader::refuse_other_options(const json& object,
                                  const std::string& where,
                                  std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end() && !is_off(value))
      refuse(where + "." + key, describe(value), "off, it is not supported");
}

void Reader::take_id(std::int32_t id, const std::string& token, const std::string& where) {
  const auto [entry, is_new] = token_of_id_.emplace(id, token);
  if (!is_new)
    refuse(where, describe(id),
           fmt::format("an id of its own, {} has it", describe(entry->second)));
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  return Reader(path).read(read_json(path));
}

}  // namespace tp

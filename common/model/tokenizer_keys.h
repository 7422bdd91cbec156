// Reading the keys of a tokenizer.json and collecting what is wrong with them.
// [introduced in chapter 06]
//
// Only .cpp files include this: it needs the JSON library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/model/json.h"
#include "common/model/json_object.h"
#include "common/model/problems.h"

namespace tp {

// The value of a key; null if there is no such key or `object` is none.
const nlohmann::json& member(const nlohmann::json& object, std::string_view key);

bool has_type(const nlohmann::json& object, std::string_view type);

// What an object such as a normalizer is called in error messages.
std::string name_of(const nlohmann::json& object);

// The id that a value is; nothing if it is none.
std::optional<std::int32_t> to_id(const nlohmann::json& value);

// `where` is a place in the file, such as "model.merges[3]". A value that is wrong becomes a
// problem, and reading goes on.
class TokenizerKeys {
 public:
  explicit TokenizerKeys(std::string path) : path_(std::move(path)) {}

  // "tokenizer.json: model.dropout = 0.1: must be off".
  void refuse(const std::string& where, const std::string& value, const std::string& right);
  void refuse(const std::string& where, const nlohmann::json& value, const std::string& right) {
    refuse(where, describe(value), right);
  }
  // "tokenizer.json: pre_tokenizer.pattern: what is wrong".
  void refuse(const std::string& where, const std::string& what);

  std::optional<std::int32_t> id(const nlohmann::json& value, const std::string& where);
  bool flag(const nlohmann::json& object,
            const std::string& where,
            const char* key,
            bool if_missing);
  std::int64_t whole(const nlohmann::json& object,
                     const std::string& where,
                     const char* key,
                     Limits<std::int64_t> limits);
  // "" after a problem.
  std::string text(const nlohmann::json& object, const std::string& where, const char* key);
  std::string text_not_empty(const nlohmann::json& object,
                             const std::string& where,
                             const char* key);

  // An option that is not known here may change the ids, so it has to be off.
  void refuse_other_options(const nlohmann::json& object,
                            const std::string& where,
                            std::initializer_list<std::string_view> known);

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  std::string path_;
  Problems problems_;
};

}  // namespace tp

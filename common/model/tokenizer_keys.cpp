#include "common/model/tokenizer_keys.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/model/tokenizer_file.h"

namespace tp {

using nlohmann::json;

namespace {

// null, false, zero or "".
bool is_off(const json& value) {
  return value.is_null() || value == false || value == "" || (value.is_number() && value == 0);
}

}  // namespace

const json& member(const json& object, std::string_view key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool has_type(const json& object, std::string_view type) {
  return member(object, "type") == type;
}

std::string name_of(const json& object) {
  const json& type = member(object, "type");
  return describe(type.is_string() ? type : object);
}

std::optional<std::int32_t> to_id(const json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() < kTokenIdLimit)
    return value.get<std::int32_t>();
  return {};
}

void TokenizerKeys::refuse(const std::string& where,
                           const std::string& value,
                           const std::string& right) {
  problems_.add(fmt::format("{}: {} = {}: must be {}", path_, where, value, right));
}

void TokenizerKeys::refuse(const std::string& where, const std::string& what) {
  problems_.add(fmt::format("{}: {}: {}", path_, where, what));
}

std::optional<std::int32_t> TokenizerKeys::id(const json& value, const std::string& where) {
  const std::optional<std::int32_t> known = to_id(value);
  if (!known) refuse(where, value, fmt::format("an id from 0 to {}", kTokenIdLimit - 1));
  return known;
}

bool TokenizerKeys::flag(const json& object,
                         const std::string& where,
                         const char* key,
                         bool if_missing) {
  const json& value = member(object, key);
  if (value.is_null()) return if_missing;
  if (value.is_boolean()) return value.get<bool>();
  refuse(where + "." + key, value, "true or false");
  return if_missing;
}

std::int64_t TokenizerKeys::whole(const json& object,
                                  const std::string& where,
                                  const char* key,
                                  Limits<std::int64_t> limits) {
  const json& value = member(object, key);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t(limits.max) &&
      value.get<std::int64_t>() >= limits.min)
    return value.get<std::int64_t>();
  refuse(where + "." + key, value,
         fmt::format("a whole number from {} to {}", limits.min, limits.max));
  return limits.min;
}

std::string TokenizerKeys::text(const json& object, const std::string& where, const char* key) {
  const json& value = member(object, key);
  if (value.is_string()) return value.get<std::string>();
  refuse(where + "." + key, value, "a text");
  return "";
}

std::string TokenizerKeys::text_not_empty(const json& object,
                                          const std::string& where,
                                          const char* key) {
  const json& value = member(object, key);
  if (value.is_string() && value != "") return value.get<std::string>();
  refuse(where + "." + key, value, "a text that is not empty");
  return "";
}

void TokenizerKeys::refuse_other_options(const json& object,
                                         const std::string& where,
                                         std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end() && !is_off(value))
      refuse(where + "." + key, value, "off, it is not supported");
}

}  // namespace tp

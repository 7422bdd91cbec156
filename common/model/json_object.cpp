#include "common/model/json_object.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

std::string whole_number_within(Limits<std::int64_t> limits) {
  return fmt::format("a whole number from {} to {}", limits.min, limits.max);
}

std::string number_within(Limits<double> limits) {
  return fmt::format("a number from {} to {}", limits.min, limits.max);
}

std::string one_of(const std::vector<std::string_view>& allowed) {
  return fmt::format("{}\"{}\"", allowed.size() > 1 ? "one of " : "", fmt::join(allowed, "\", \""));
}

// The value as a whole number; nothing for 16.0, true, "16" and numbers outside the limits.
std::optional<std::int64_t> to_whole(const nlohmann::json& value, Limits<std::int64_t> limits) {
  if (!value.is_number_integer()) return std::nullopt;
  // An unsigned value may not fit: it must not turn into a negative one.
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < limits.min || number > limits.max) return std::nullopt;
  return number;
}

}  // namespace

JsonObject::JsonObject(const nlohmann::json& value, std::string file, Problems& problems)
    : JsonObject(value, std::move(file), "", problems) {
  if (!value.is_object())
    throw input_error(fmt::format("{}: holds {}: must be a JSON object", file_, describe(value)));
}

JsonObject::JsonObject(const nlohmann::json& value,
                       std::string file,
                       std::string prefix,
                       Problems& problems)
    : value_(&value), file_(std::move(file)), prefix_(std::move(prefix)), problems_(&problems) {}

const nlohmann::json* JsonObject::find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::is_null(std::string_view key) const {
  const auto found = value_->find(key);
  return found != value_->end() && found->is_null();
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->items())
    if (!value.is_null()) keys.push_back(key);
  return keys;
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object())
    return JsonObject(*value, file_, fmt::format("{}{}.", prefix_, key), *problems_);
  refuse(key, "a JSON object");
  return std::nullopt;
}

std::optional<std::int64_t> JsonObject::whole(std::string_view key,
                                              Limits<std::int64_t> limits) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = to_whole(*value, limits);
  if (!number) refuse(key, whole_number_within(limits));
  return number;
}

std::vector<std::int64_t> JsonObject::whole_list(std::string_view key,
                                                 Limits<std::int64_t> limits) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  std::vector<std::int64_t> numbers;
  const auto append = [&](const nlohmann::json& element) {
    const auto number = to_whole(element, limits);
    if (number) numbers.push_back(*number);
    return number.has_value();
  };
  const bool right =
      value->is_array() ? std::all_of(value->begin(), value->end(), append) : append(*value);
  if (right) return numbers;
  refuse(key, whole_number_within(limits) + ", or a list of them");
  return {};
}

std::optional<std::vector<std::string>> JsonObject::text_list(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool right =
      value->is_array() && std::all_of(value->begin(), value->end(),
                                       [](const nlohmann::json& text) { return text.is_string(); });
  if (right) return value->get<std::vector<std::string>>();
  refuse(key, "a list of texts");
  return std::nullopt;
}

std::optional<double> JsonObject::number(std::string_view key, Limits<double> limits) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (limits.min <= number && number <= limits.max) return number;
  }
  refuse(key, number_within(limits));
  return std::nullopt;
}

std::optional<bool> JsonObject::boolean(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonObject::text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "a text");
  return std::nullopt;
}

std::optional<std::string> JsonObject::choice(std::string_view key,
                                              const std::vector<std::string_view>& allowed) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    auto text = value->get<std::string>();
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  }
  refuse(key, one_of(allowed));
  return std::nullopt;
}

std::int64_t JsonObject::required_whole(std::string_view key, Limits<std::int64_t> limits) const {
  if (!has(key)) refuse(key, whole_number_within(limits));
  return whole(key, limits).value_or(0);
}

double JsonObject::required_number(std::string_view key, Limits<double> limits) const {
  if (!has(key)) refuse(key, number_within(limits));
  return number(key, limits).value_or(0);
}

std::string JsonObject::required_choice(std::string_view key,
                                        const std::vector<std::string_view>& allowed) const {
  if (!has(key)) refuse(key, one_of(allowed));
  return choice(key, allowed).value_or("");
}

void JsonObject::refuse(std::string_view key, std::string_view right) const {
  const nlohmann::json* value = find(key);
  const std::string state = value == nullptr ? " is missing" : " = " + describe(*value);
  problems_->add(fmt::format("{}: {}{}{}: must be {}", file_, prefix_, key, state, right));
}

}  // namespace tp

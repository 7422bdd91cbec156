// Typed access to the keys of a JSON object. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/json.h"
#include "common/model/problems.h"

namespace tp {

// The smallest and the largest value that make sense.
template <class T>
struct Limits {
  T min;
  T max;
};

// Reads the keys of an object that somebody else wrote. A null counts as missing, as in Hugging
// Face's own readers. A value of the wrong type or outside its limits becomes a problem, in a line
// that names the file, the key, the value and what would be right; it then reads as missing, so
// that one run finds all problems.
// The JSON and the list of problems must live longer than this object.
class JsonObject {
 public:
  // Errors: tp::Error (input) naming the file if `value` is no object.
  JsonObject(const nlohmann::json& value, std::string file, Problems& problems);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Whether the key is there with the value null: for the few keys where that is not the same as
  // missing.
  bool is_null(std::string_view key) const;
  std::vector<std::string> keys() const;

  // The object under a key.
  std::optional<JsonObject> object(std::string_view key) const;
  std::optional<std::int64_t> whole(std::string_view key, Limits<std::int64_t> limits) const;
  // One whole number, or a list of them; empty if the key is missing.
  std::vector<std::int64_t> whole_list(std::string_view key, Limits<std::int64_t> limits) const;
  std::optional<double> number(std::string_view key, Limits<double> limits) const;
  std::optional<bool> boolean(std::string_view key) const;
  // A list of texts; nothing if the key is missing.
  std::optional<std::vector<std::string>> text_list(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::string> choice(std::string_view key,
                                    const std::vector<std::string_view>& allowed) const;

  // The same for keys that must be there. One that is missing is a problem and reads as 0 or "".
  std::int64_t required_whole(std::string_view key, Limits<std::int64_t> limits) const;
  double required_number(std::string_view key, Limits<double> limits) const;
  std::string required_choice(std::string_view key,
                              const std::vector<std::string_view>& allowed) const;

  // Adds the problem that a key has a wrong value or is missing, for example
  // "config.json: head_dim = 7: must be even".
  void refuse(std::string_view key, std::string_view right) const;

 private:
  JsonObject(const nlohmann::json& value, std::string file, std::string prefix, Problems& problems);
  const nlohmann::json* find(std::string_view key) const;

  const nlohmann::json* value_;
  std::string file_;
  std::string prefix_;  // "rope_scaling." inside that object
  Problems* problems_;
};

}  // namespace tp

#include "common/model/json.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/mapped_file.h"

namespace tp {

namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

// Is told of every piece of a JSON text while it is parsed.
class StructureCheck {
 public:
  explicit StructureCheck(std::string file) : file_(std::move(file)) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& piece) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth)
      throw input_error(fmt::format("{}: nested more than {} levels deep", file_, kMaxDepth));
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::key) keys_.back().push_back(piece.get<std::string>());
    if (event == Event::object_end) {
      // The finished object holds each key once.
      if (piece.size() < keys_.back().size()) refuse_twin(keys_.back());
      keys_.pop_back();
    }
    return true;  // keep the piece
  }

 private:
  [[noreturn]] void refuse_twin(std::vector<std::string>& keys) const {
    std::sort(keys.begin(), keys.end());
    const auto twin = std::adjacent_find(keys.begin(), keys.end());
    throw input_error(
        fmt::format("{}: the key {} stands twice in one object", file_, describe(*twin)));
  }

  std::string file_;
  std::vector<std::vector<std::string>> keys_;  // of the objects that are open, as they were read
};

Error no_json(const std::string& name, std::size_t byte) {
  return input_error(fmt::format("{}: no valid JSON at byte {}", name, byte));
}

}  // namespace

nlohmann::json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMaxFileBytes)
    throw input_error(fmt::format("{}: has {} bytes: JSON files must have at most {}",
                                  path.string(), file.bytes().size(), kMaxFileBytes));
  return parse_json(file.text(), path.string());
}

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  StructureCheck check(name);
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw no_json(name, zero + 1);  // would end the text for the parser
  try {
    return nlohmann::json::parse(text, std::ref(check));
  } catch (const nlohmann::json::parse_error& e) {
    throw no_json(name, e.byte);
  } catch (const nlohmann::json::out_of_range&) {
    throw input_error(fmt::format("{}: holds a number that is too large", name));
  }
}

std::string describe(const nlohmann::json& value) {
  constexpr std::size_t kMaxBytes = 100;
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() <= kMaxBytes) return text;
  std::size_t end = kMaxBytes - 3;
  // Not in the middle of a character of UTF-8.
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace tp

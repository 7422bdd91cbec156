// Small tokenizer.json files for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/model/byte_level.h"
#include "common/model/json.h"
#include "common/model/stream_decoder.h"
#include "common/model/tokenizer.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace tp {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

// The smallest useful tokenizer.json.
inline json small_file() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}
  })");
}

inline json file_with(const json& vocab, const json& merges) {
  json file = small_file();
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  return file;
}

// Every byte is a token, its id is the byte.
inline json byte_file() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab[bytes_to_characters(std::string(1, static_cast<char>(byte)))] = byte;
  json file = file_with(vocab, json::array());
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return file;
}

inline Tokenizer load(const json& file) {
  const TempFolder folder;
  return Tokenizer::load(folder.write("tokenizer.json", file.dump()));
}

// What is said about a file that cannot be loaded.
inline std::string refusal(const std::filesystem::path& path) {
  try {
    Tokenizer::load(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "not refused";
}

inline std::string refusal(const json& file) {
  const TempFolder folder;
  return refusal(folder.write("tokenizer.json", file.dump()));
}

inline json added(const std::string& content, int id, const json& flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"special", false},    {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"single_word", false}};
  token.update(flags);
  return token;
}

inline std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = false) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

}  // namespace tp

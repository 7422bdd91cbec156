// Reading JSON files with errors that name the file. [introduced in chapter 06]
//
// Only .cpp files include this, so that few files have to wait for the JSON library to compile.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tp {

// The parsed file, which takes memory of up to 32 times its size.
// Errors: tp::Error (input) naming the path if the file cannot be read, has more than 64 MiB, is no
//         JSON (names the byte), has a key twice in one object (which of the two is meant?), or is
//         nested more than 64 levels deep.
nlohmann::json read_json(const std::filesystem::path& path);
// The same for a text; `name` stands for the path in messages.
nlohmann::json parse_json(std::string_view text, const std::string& name);

// The value as JSON for an error message, in at most 100 bytes.
std::string describe(const nlohmann::json& value);

}  // namespace tp

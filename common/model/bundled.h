// Where the models that come with the project lie. [introduced in chapter 06]
#pragma once

#include <filesystem>
#include <string>

namespace tp {

// The folder models/NAME, in the folder of the program or one above it.
// Errors: tp::Error (input) if it is in none of them.
std::filesystem::path bundled_model(const std::string& name = "austen-5m");

}  // namespace tp

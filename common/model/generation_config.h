// How the authors of a model want its text to be sampled. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/model/problems.h"

namespace tp {

// The contents of generation_config.json, under their Hugging Face names.
struct GenerationConfig {
  std::vector<std::int32_t> eos_token_ids;  // each of them ends a text; empty: not given
  bool do_sample = false;                   // false: always the most likely token
  double temperature = 1;                   // 1: off; 0: always the most likely token
  double top_p = 1;                         // 1: off
  std::int64_t top_k = 0;                   // 0: off

  // Reads the file in a model folder. The file may be missing, and so may every key of it.
  // eos_token_id is one id or a list of ids.
  // Errors: tp::Error (input) with all problems of the file, each line naming the file, the key,
  //         its value and what would be right.
  static GenerationConfig load(const std::filesystem::path& folder);

  // The same, leaving the problems to the caller, who has more to read.
  static GenerationConfig load(const std::filesystem::path& folder, Problems& problems);
};

}  // namespace tp

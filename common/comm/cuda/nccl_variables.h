// The environment variables of NCCL that people set, and what they do. [introduced in chapter 01]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tp::cuda {

struct NcclVariable {
  std::string_view name;
  std::string_view meaning;
};

// Sorted by name.
// Source: NVIDIA, NCCL user guide, "Environment Variables" (2.28).
std::span<const NcclVariable> nccl_variables();

// What is said of a variable that begins with NCCL_, known or not.
std::string meaning_of_nccl_variable(std::string_view name);

// The variables that are set, with their values and meanings, then the known ones that are not; for
// people. `environment` has names and values of any variables.
std::string describe_nccl_environment(
    const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace tp::cuda

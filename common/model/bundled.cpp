#include "common/model/bundled.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

std::filesystem::path bundled_model(const std::string& name) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  for (std::filesystem::path folder = program.parent_path();; folder = folder.parent_path()) {
    std::filesystem::path model = folder / "models" / name;
    if (std::filesystem::exists(model / "config.json")) return model;
    if (folder == folder.root_path()) break;
  }
  throw input_error(
      fmt::format("models/{}: not found beside or above {}; name a model folder with --model", name,
                  program.string()));
}

}  // namespace tp

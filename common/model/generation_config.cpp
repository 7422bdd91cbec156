#include "common/model/generation_config.h"

#include <limits>

#include "common/model/json_object.h"

namespace tp {

GenerationConfig GenerationConfig::load(const std::filesystem::path& folder) {
  Problems problems;
  GenerationConfig config = load(folder, problems);
  problems.throw_if_any();
  return config;
}

GenerationConfig GenerationConfig::load(const std::filesystem::path& folder, Problems& problems) {
  const std::filesystem::path file = folder / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const nlohmann::json json = read_json(file);
  const JsonObject keys(json, file.string(), problems);

  constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
  GenerationConfig config;
  for (const std::int64_t id : keys.whole_list("eos_token_id", {0, kMaxInt}))
    config.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  config.do_sample = keys.boolean("do_sample").value_or(config.do_sample);
  config.temperature = keys.number("temperature", {0, std::numeric_limits<float>::max()})
                           .value_or(config.temperature);
  config.top_p = keys.number("top_p", {0, 1}).value_or(config.top_p);
  config.top_k = keys.whole("top_k", {-1, kMaxInt}).value_or(config.top_k);
  if (config.top_k == -1) config.top_k = 0;  // the other way to write "off"
  return config;
}

}  // namespace tp

#include "common/model/rope_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace tp {

namespace {

using Names = std::vector<std::string_view>;

struct TypeKeys {
  RopeType type;
  std::array<std::string_view, 8> keys;  // besides those that every type has
};

constexpr std::array kTypes{
    TypeKeys{RopeType::unscaled, {}},
    TypeKeys{RopeType::linear, {"factor"}},
    TypeKeys{RopeType::llama3,
             {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
    TypeKeys{RopeType::yarn,
             {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
              "beta_slow", "mscale", "mscale_all_dim", "truncate"}},
};
constexpr std::array<std::string_view, 4> kCommonKeys{"rope_type", "type", "rope_theta",
                                                      "partial_rotary_factor"};

constexpr Limits<double> kTheta{1, 1e30};
constexpr Limits<double> kStretch{1, 1e6};
constexpr Limits<double> kPositive{1e-6, 1e6};

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void refuse_partial(const JsonObject& keys) {
  if (keys.number("partial_rotary_factor", {0, 1}).value_or(1) != 1)
    keys.refuse("partial_rotary_factor", "1: RoPE turns whole heads");
}

// The type of a block; nothing if it has none that is known, which is a problem already.
const TypeKeys* read_type(const JsonObject& block) {
  Names names;
  for (const TypeKeys& type : kTypes) names.push_back(name_of(type.type));
  const auto newer = block.choice("rope_type", names);
  const auto older = block.choice("type", names);
  if (newer && older && *newer != *older)
    block.refuse("type", fmt::format("\"{}\" like rope_type", *newer));
  const bool known = newer || older;
  if (!known && (block.has("rope_type") || block.has("type"))) return nullptr;
  const std::vector<std::string> keys = block.keys();
  const bool scales = std::any_of(keys.begin(), keys.end(),
                                  [](const auto& key) { return !contains(kCommonKeys, key); });
  if (!known && scales) {
    block.required_choice("rope_type", names);
    return nullptr;
  }
  const std::string name = newer.value_or(older.value_or("default"));
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [&](const TypeKeys& type) { return name_of(type.type) == name; });
}

// How long the texts of the first training were. Some files say so outside the block.
std::int64_t read_original_length(const JsonObject& config,
                                  const JsonObject& block,
                                  std::optional<std::int64_t> if_missing) {
  constexpr char kKey[] = "original_max_position_embeddings";
  constexpr Limits<std::int64_t> kPositions{1, 1 << 24};
  const auto inside = block.whole(kKey, kPositions), outside = config.whole(kKey, kPositions);
  if (inside && outside && *inside != *outside)
    block.refuse(kKey, fmt::format("{}, as outside of this block", *outside));
  if (!block.has(kKey) && !outside && !if_missing) return block.required_whole(kKey, kPositions);
  return inside ? *inside : outside ? *outside : if_missing.value_or(0);
}

void read_llama3(const JsonObject& config, const JsonObject& block, RopeConfig& rope) {
  rope.low_freq_factor = block.required_number("low_freq_factor", kPositive);
  rope.high_freq_factor = block.required_number("high_freq_factor", kPositive);
  if (block.has("low_freq_factor") && rope.high_freq_factor <= rope.low_freq_factor)
    block.refuse("high_freq_factor",
                 fmt::format("above low_freq_factor, {}", rope.low_freq_factor));
  rope.original_max_position_embeddings = read_original_length(config, block, {});
}

void read_yarn(const JsonObject& config,
               const JsonObject& block,
               std::int64_t max_position_embeddings,
               RopeConfig& rope) {
  rope.beta_fast = block.number("beta_fast", kPositive).value_or(rope.beta_fast);
  rope.beta_slow = block.number("beta_slow", kPositive).value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow)
    block.refuse("beta_fast", fmt::format("at least beta_slow, {}", rope.beta_slow));
  // The default is true, but a null that is written out is read as false.
  rope.truncate = block.boolean("truncate").value_or(!block.is_null("truncate"));
  rope.original_max_position_embeddings =
      read_original_length(config, block, max_position_embeddings);
  const double mscale = block.number("mscale", {0, 1e6}).value_or(0);
  const double all_dim = block.number("mscale_all_dim", {0, 1e6}).value_or(0);
  const bool both = mscale > 0 && all_dim > 0;  // one alone counts for nothing
  const double usual = both ? yarn_attention_factor(rope.factor, mscale) /
                                  yarn_attention_factor(rope.factor, all_dim)
                            : yarn_attention_factor(rope.factor);
  rope.attention_factor = block.number("attention_factor", kPositive).value_or(usual);
}

RopeConfig read_block(const JsonObject& config,
                      const JsonObject& block,
                      std::int64_t max_position_embeddings) {
  refuse_partial(block);
  RopeConfig rope;
  const TypeKeys* type = read_type(block);
  if (type == nullptr) return rope;
  rope.type = type->type;
  for (const std::string& key : block.keys())
    if (!contains(kCommonKeys, key) && !contains(type->keys, key))
      block.refuse(key,
                   fmt::format("absent: RoPE of type \"{}\" has no such key", name_of(rope.type)));
  if (rope.type != RopeType::unscaled) rope.factor = block.required_number("factor", kStretch);
  if (rope.type == RopeType::llama3) read_llama3(config, block, rope);
  if (rope.type == RopeType::yarn) read_yarn(config, block, max_position_embeddings, rope);
  return rope;
}

}  // namespace

RopeConfig read_rope(const JsonObject& config, std::int64_t max_position_embeddings) {
  refuse_partial(config);
  std::optional<double> theta = config.number("rope_theta", kTheta);
  std::optional<RopeConfig> rope;
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    const std::optional<JsonObject> block = config.object(name);
    if (!block || block->keys().empty()) continue;
    const RopeConfig here = read_block(config, *block, max_position_embeddings);
    if (rope && *rope != here) config.refuse(name, "the same as rope_scaling, or absent");
    rope = here;
    const std::optional<double> own = block->number("rope_theta", kTheta);
    if (own && theta && *own != *theta)
      block->refuse("rope_theta",
                    fmt::format("{}, as the other place that has this key says", *theta));
    if (own) theta = own;
  }
  RopeConfig result = rope.value_or(RopeConfig());
  result.rope_theta = theta.value_or(result.rope_theta);
  if (result.type == RopeType::yarn && result.rope_theta <= 1)
    config.refuse("rope_theta", "above 1 with RoPE of type \"yarn\"");
  return result;
}

}  // namespace tp

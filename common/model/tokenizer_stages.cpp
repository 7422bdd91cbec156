#include "common/model/tokenizer_stages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/utf8.h"

namespace tp {
namespace {

using nlohmann::json;

// Calls read(step, where) for each step of a stage: the stage may be null, a step itself, or a
// "Sequence" with a list of steps under `list_key`.
template <class Read>
void for_each_step(const json& stage,
                   const std::string& where,
                   const char* list_key,
                   TokenizerKeys& keys,
                   const Read& read) {
  if (stage.is_null()) return;
  if (!has_type(stage, "Sequence")) return read(stage, where);
  keys.refuse_other_options(stage, where, {"type", list_key});
  const json& steps = member(stage, list_key);
  if (!steps.is_array()) return keys.refuse(fmt::format("{}.{}", where, list_key), steps, "a list");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string step_where = fmt::format("{}.{}[{}]", where, list_key, i);
    if (steps[i].is_null())
      keys.refuse(step_where, steps[i], "an object");
    else
      for_each_step(steps[i], step_where, list_key, keys, read);
  }
}

// "Replace", as a normalizer and as a decoder.
TokenDecoding::Replacement read_replacement(const json& step,
                                            const std::string& where,
                                            TokenizerKeys& keys) {
  keys.refuse_other_options(step, where, {"type", "pattern", "content"});
  const json& pattern = member(step, "pattern");
  const json& text = member(pattern, "String");
  if (!text.is_string() || text == "" || pattern.size() != 1)
    keys.refuse(where + ".pattern", pattern, "{\"String\": \"...\"} with a text that is not empty");
  return {text.is_string() ? text.get<std::string>() : "", keys.text(step, where, "content")};
}

// --- Pre-tokenizer ---

void read_split(const json& split,
                const std::string& where,
                TokenizerKeys& keys,
                std::vector<PreTokenizerStep>& steps) {
  keys.refuse_other_options(split, where, {"type", "pattern", "behavior"});
  if (const json& behavior = member(split, "behavior"); behavior != "Isolated")
    keys.refuse(where + ".behavior", behavior, "\"Isolated\"");
  const json& pattern = member(split, "pattern");
  const json& regex = member(pattern, "Regex");
  if (!regex.is_string() || pattern.size() != 1)
    return keys.refuse(where + ".pattern", pattern, "{\"Regex\": \"...\"}");
  try {
    steps.push_back(split_isolated(SplitPattern(regex.get<std::string>())));
  } catch (const Error& e) {
    keys.refuse(where + ".pattern", e.what());
  }
}

void read_digits(const json& digits,
                 const std::string& where,
                 TokenizerKeys& keys,
                 std::vector<PreTokenizerStep>& steps) {
  keys.refuse_other_options(digits, where, {"type", "individual_digits"});
  const bool cut = keys.flag(digits, where, "individual_digits", false);
  steps.push_back(split_digits(cut ? DigitRows::cut : DigitRows::kept));
}

void read_byte_level(const json& byte_level,
                     const std::string& where,
                     TokenizerKeys& keys,
                     std::vector<PreTokenizerStep>& steps) {
  // trim_offsets only moves offsets.
  keys.refuse_other_options(byte_level, where,
                            {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (keys.flag(byte_level, where, "add_prefix_space", true)) steps.push_back(add_prefix_blank());
  if (keys.flag(byte_level, where, "use_regex", true))
    steps.push_back(split_isolated(SplitPattern(std::string(kGpt2Pattern))));
  steps.push_back(write_bytes_as_characters());
}

void read_metaspace(const json& metaspace,
                    const std::string& where,
                    TextBefore text,
                    TokenizerKeys& keys,
                    std::vector<PreTokenizerStep>& steps) {
  using Prepend = Metaspace::Prepend;
  // str_rep is "replacement" again, add_prefix_space an older way to write prepend_scheme.
  keys.refuse_other_options(
      metaspace, where,
      {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  Metaspace options;
  options.blank = keys.text_not_empty(metaspace, where, "replacement");
  if (options.blank.empty()) return;
  if (first_character(options.blank).bytes != options.blank.size())
    keys.refuse(where + ".replacement", describe(options.blank), "one character");
  options.split = keys.flag(metaspace, where, "split", true);

  const json& scheme = member(metaspace, "prepend_scheme");
  if (scheme == "never")
    options.prepend = Prepend::never;
  else if (scheme == "first")
    options.prepend = Prepend::first;
  else if (!scheme.is_null() && scheme != "always")
    keys.refuse(where + ".prepend_scheme", scheme, "\"never\", \"first\" or \"always\"");
  // Which piece is the first then depends on how Hugging Face's tokenizers count characters that
  // have been moved.
  if (options.prepend == Prepend::first && text == TextBefore::rewritten)
    keys.refuse(where + ".prepend_scheme", scheme,
                "\"never\" or \"always\" behind a normalizer other than \"NFC\"");
  if (!keys.flag(metaspace, where, "add_prefix_space", true) && options.prepend != Prepend::never)
    keys.refuse(where + ".add_prefix_space", json(false),
                "true, or prepend_scheme must be \"never\"");
  steps.push_back(write_blanks(std::move(options)));
}

// --- Post-processor ---

// Appends the ids of a special token of a template.
void read_special(const json& name,
                  const json& special_tokens,
                  const std::string& where,
                  TokenizerKeys& keys,
                  std::vector<std::int32_t>& ids) {
  static const json null;
  const json& token =
      name.is_string() ? member(special_tokens, name.get_ref<const std::string&>()) : null;
  const json& values = member(token, "ids");
  if (!values.is_array() || values.empty())
    return keys.refuse(where, name, "a key of special_tokens, with a list of ids there");
  for (const json& value : values)
    if (const auto id = keys.id(value, where)) ids.push_back(*id);
}

SpecialsAround read_template(const json& post_processor,
                             const std::string& where,
                             TokenizerKeys& keys) {
  // "pair" is for two texts.
  keys.refuse_other_options(post_processor, where, {"type", "single", "pair", "special_tokens"});
  SpecialsAround around;
  const json& pieces = member(post_processor, "single");
  int texts = 0;
  for (std::size_t i = 0; pieces.is_array() && i < pieces.size(); ++i) {
    const std::string piece_where = fmt::format("{}.single[{}]", where, i);
    const json& special = member(pieces[i], "SpecialToken");
    if (special.is_object())
      read_special(member(special, "id"), member(post_processor, "special_tokens"),
                   piece_where + ".SpecialToken.id", keys,
                   texts == 0 ? around.before : around.after);
    else if (member(member(pieces[i], "Sequence"), "id") == "A")
      ++texts;
    else
      keys.refuse(piece_where, pieces[i], "a SpecialToken or the Sequence A");
  }
  if (texts != 1) keys.refuse(where + ".single", pieces, "a list with the Sequence A once");
  return around;
}

// --- Decoder ---

void read_strip(const json& strip,
                const std::string& where,
                TokenizerKeys& keys,
                TokenDecoding& decoding) {
  keys.refuse_other_options(strip, where, {"type", "content", "start"});  // "stop" must be 0
  decoding.front = keys.text_not_empty(strip, where, "content");
  if (!decoding.front.empty() && first_character(decoding.front).bytes != decoding.front.size())
    keys.refuse(where + ".content", describe(decoding.front), "one character");
  decoding.front_count = keys.whole(strip, where, "start", {0, 1'000'000});
}

// The steps of a decoder other than "ByteLevel", in the one order in which they are supported.
class DecoderSteps {
 public:
  DecoderSteps(TokenizerKeys& keys, TokenDecoding& decoding) : keys_(keys), decoding_(decoding) {}

  void read(const json& step, const std::string& where) {
    const auto place =
        std::ranges::find_if(kOrder, [&](const char* type) { return has_type(step, type); });
    const auto index = place - kOrder.begin();
    const bool may_repeat = index == kReplace;
    if (place == kOrder.end())
      return keys_.refuse(where, name_of(step), fmt::format("one of {}", fmt::join(kOrder, ", ")));
    if (index < next_ || (index == kStrip && next_ <= kFuse))
      return keys_.refuse(where, name_of(step),
                          fmt::format("in the order {}", fmt::join(kOrder, ", ")));
    next_ = may_repeat ? index : index + 1;
    if (index == kReplace) decoding_.replacements.push_back(read_replacement(step, where, keys_));
    if (index == kByteFallback) decoding_.byte_fallback = true;
    if (index == kStrip) read_strip(step, where, keys_, decoding_);
  }

 private:
  static constexpr std::array kOrder{"Replace", "ByteFallback", "Fuse", "Strip"};
  static constexpr int kReplace = 0, kByteFallback = 1, kFuse = 2, kStrip = 3;

  TokenizerKeys& keys_;
  TokenDecoding& decoding_;
  std::ptrdiff_t next_ = 0;  // the first of kOrder that may follow
};

}  // namespace

std::vector<NormalizerStep> read_normalizer(const json& normalizer, TokenizerKeys& keys) {
  std::vector<NormalizerStep> steps;
  const auto read = [&](const json& step, const std::string& where) {
    if (has_type(step, "NFC")) {
      keys.refuse_other_options(step, where, {"type"});
      steps.push_back(compose());
    } else if (has_type(step, "Prepend")) {
      keys.refuse_other_options(step, where, {"type", "prepend"});
      steps.push_back(prepend(keys.text_not_empty(step, where, "prepend")));
    } else if (has_type(step, "Replace")) {
      auto [what, by] = read_replacement(step, where, keys);
      steps.push_back(replace_all(std::move(what), std::move(by)));
    } else {
      keys.refuse(where, name_of(step), "null, \"NFC\", \"Prepend\" or \"Replace\"");
    }
  };
  for_each_step(normalizer, "normalizer", "normalizers", keys, read);
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const json& pre_tokenizer,
                                                 TextBefore text,
                                                 TokenizerKeys& keys) {
  std::vector<PreTokenizerStep> steps;
  const auto read = [&](const json& step, const std::string& where) {
    if (has_type(step, "Split"))
      read_split(step, where, keys, steps);
    else if (has_type(step, "Digits"))
      read_digits(step, where, keys, steps);
    else if (has_type(step, "ByteLevel"))
      read_byte_level(step, where, keys, steps);
    else if (has_type(step, "Metaspace"))
      read_metaspace(step, where, text, keys, steps);
    else
      keys.refuse(where, name_of(step), "\"Split\", \"Digits\", \"ByteLevel\" or \"Metaspace\"");
  };
  for_each_step(pre_tokenizer, "pre_tokenizer", "pretokenizers", keys, read);
  return steps;
}

SpecialsAround read_post_processor(const json& post_processor, TokenizerKeys& keys) {
  std::optional<SpecialsAround> around;
  const auto read = [&](const json& step, const std::string& where) {
    if (has_type(step, "ByteLevel")) return;
    if (!has_type(step, "TemplateProcessing"))
      return keys.refuse(where, name_of(step), "null, \"ByteLevel\" or \"TemplateProcessing\"");
    if (around) return keys.refuse(where, name_of(step), "there only once");
    around = read_template(step, where, keys);
  };
  for_each_step(post_processor, "post_processor", "processors", keys, read);
  return around.value_or(SpecialsAround());
}

TokenDecoding read_decoder(const json& decoder, TokenizerKeys& keys) {
  TokenDecoding decoding;
  decoding.byte_level = has_type(decoder, "ByteLevel");
  if (decoding.byte_level) return decoding;
  if (!has_type(decoder, "Sequence")) {
    keys.refuse("decoder", name_of(decoder), "\"ByteLevel\" or a \"Sequence\"");
    return decoding;
  }
  DecoderSteps steps(keys, decoding);
  for_each_step(decoder, "decoder", "decoders", keys,
                [&](const json& step, const std::string& where) { steps.read(step, where); });
  return decoding;
}

}  // namespace tp

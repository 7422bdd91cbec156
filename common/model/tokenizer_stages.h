// The stages of a tokenizer.json around its model: what happens to a text before, and to ids after.
// [introduced in chapter 06]
//
// Only .cpp files include this: it needs the JSON library. Each function reads one key of the file;
// a kind or an option that is not supported and would change ids or text is refused by name.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/normalizer.h"
#include "common/model/pre_tokenizer.h"
#include "common/model/token_text.h"
#include "common/model/tokenizer_file.h"
#include "common/model/tokenizer_keys.h"

namespace tp {

// null, "NFC", "Prepend", "Replace" with a text, or a "Sequence" of them.
std::vector<NormalizerStep> read_normalizer(const nlohmann::json& normalizer, TokenizerKeys& keys);

// null, "Split" by a regular expression, "Digits", "ByteLevel", "Metaspace", or a "Sequence".
enum class TextBefore : std::uint8_t { as_typed, rewritten };  // by the normalizer
std::vector<PreTokenizerStep> read_pre_tokenizer(const nlohmann::json& pre_tokenizer,
                                                 TextBefore text,
                                                 TokenizerKeys& keys);

// null, "ByteLevel", which only moves offsets, "TemplateProcessing", or a "Sequence".
SpecialsAround read_post_processor(const nlohmann::json& post_processor, TokenizerKeys& keys);

// "ByteLevel", or a "Sequence" of "Replace", "ByteFallback", "Fuse" and "Strip" in this order.
TokenDecoding read_decoder(const nlohmann::json& decoder, TokenizerKeys& keys);

}  // namespace tp

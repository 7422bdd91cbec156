// The steps that rewrite a text before it is cut into words. [introduced in chapter 06]
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tp {

// A step takes valid UTF-8 and returns it rewritten. A new kind of normalizer is one more function
// below.
using NormalizerStep = std::function<std::string(std::string text)>;

// Puts `front` before a text that is not empty ("Prepend").
NormalizerStep prepend(std::string front);

// Replaces each `what`, which is not empty, by `by`, from left to right ("Replace").
NormalizerStep replace_all(std::string what, std::string by);

// Writes e and a combining acute accent as one character ("NFC"): the same text, typed in two ways,
// has the same ids then.
// Hugging Face's tokenizers know the characters of Unicode 9 and leave later ones alone, so this
// does, too, whatever the library below knows: other orders of marks would be other ids.
// Source:   Unicode Standard Annex 15, Normalization Form C; the ICU library
NormalizerStep compose();

// `text` with each `what` replaced.
std::string replaced(std::string_view text, std::string_view what, std::string_view by);

}  // namespace tp

#include "common/model/normalizer.h"

#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include "common/core/error.h"

namespace tp {
namespace {

void throw_if_failed(UErrorCode code) {
  if (U_FAILURE(code))
    throw input_error(fmt::format("Unicode normalisation failed: {}", u_errorName(code)));
}

// Sees only the characters that Unicode 9 has; what stands between two others is composed alone.
class ComposerOfUnicode9 {
 public:
  ComposerOfUnicode9() : characters_(icu::UnicodeString(u"[:age=9.0:]"), status_) {
    characters_.freeze();
    const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status_);
    throw_if_failed(status_);
    composer_ = std::make_unique<icu::FilteredNormalizer2>(*nfc, characters_);
  }

  std::string compose(std::string_view text) const {
    if (text.size() > std::size_t{std::numeric_limits<std::int32_t>::max()})
      throw input_error(fmt::format("a text of {} bytes is too long to normalise", text.size()));
    std::string composed;
    icu::StringByteSink<std::string> sink(&composed, static_cast<std::int32_t>(text.size()));
    UErrorCode status = U_ZERO_ERROR;
    composer_->normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(text.size())}, sink,
                             nullptr, status);
    throw_if_failed(status);
    return composed;
  }

 private:
  UErrorCode status_ = U_ZERO_ERROR;
  icu::UnicodeSet characters_;
  std::unique_ptr<icu::FilteredNormalizer2> composer_;  // refers to characters_
};

}  // namespace

NormalizerStep prepend(std::string front) {
  return [front = std::move(front)](std::string text) {
    if (!text.empty()) text.insert(0, front);
    return text;
  };
}

NormalizerStep replace_all(std::string what, std::string by) {
  return [what = std::move(what), by = std::move(by)](const std::string& text) {
    return replaced(text, what, by);
  };
}

NormalizerStep compose() {
  return [composer = std::make_shared<const ComposerOfUnicode9>()](const std::string& text) {
    return composer->compose(text);
  };
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result;
  result.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t found; (found = text.find(what, done)) != std::string_view::npos;
       done = found + what.size()) {
    result += text.substr(done, found - done);
    result += by;
  }
  result += text.substr(done);
  return result;
}

}  // namespace tp

#include "common/model/stream_decoder.h"

#include <utility>

#include "common/model/utf8.h"

namespace tp {

std::string StreamDecoder::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  undecided_ += tokenizer_->token_bytes(id);
  return take_decided(undecided_);
}

std::string StreamDecoder::finish() {
  return to_valid_utf8(std::exchange(undecided_, {}));
}

}  // namespace tp

#include "common/engine/request.h"

#include <algorithm>

namespace tp {

bool Request::ends_with(std::int32_t token) const {
  return !ignore_eos &&
         std::find(eos_token_ids.begin(), eos_token_ids.end(), token) != eos_token_ids.end();
}

std::string name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "not finished";
    case FinishReason::eos:
      return "end of text";
    case FinishReason::length:
      return "max tokens";
    case FinishReason::context:
      return "context full";
    case FinishReason::aborted:
      return "aborted";
    case FinishReason::error:
      return "error";
  }
  return "?";
}

}  // namespace tp

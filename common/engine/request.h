// What a user asks for, and what becomes of it. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/tensor.h"
#include "common/engine/sampler.h"

namespace tp {

struct Request {
  std::vector<std::int32_t> prompt_ids;
  std::int64_t max_new_tokens = 64;
  std::vector<std::int32_t> eos_token_ids;  // each of them ends the text
  bool ignore_eos = false;
  SamplingParams sampling;

  bool ends_with(std::int32_t token) const;
};

enum class FinishReason : std::uint8_t {
  none,     // still waiting or running
  eos,      // the model ended its text
  length,   // max_new_tokens
  context,  // the sequence fills what the KV cache can hold
  aborted,  // the user did not want more
  error,    // see Completion::error
};
// "end of text", "max tokens", "context full", "aborted", "error".
std::string name_of(FinishReason reason);

struct Completion {
  std::vector<std::int32_t> ids;  // new tokens; an end-of-text token is the last one
  FinishReason reason = FinishReason::none;
  std::string error;           // why it could not run, or not go on
  std::vector<Tensor> logits;  // that each new token was chosen from, [1, vocab], if kept
  std::int64_t preemptions = 0;

  double ttft_us = 0;             // from the request to its first token
  std::optional<double> tpot_us;  // mean time per further token; a single token has none
};

}  // namespace tp

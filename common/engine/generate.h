// Generating text: rank 0 decides, all ranks compute. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/core/tensor.h"
#include "common/engine/sampler.h"
#include "common/engine/step.h"
#include "common/model/decoder.h"
#include "common/model/one_device_decoder.h"

namespace tp {

// Prompts are run in chunks of at most so many tokens; any chunks give the same bits.
inline constexpr std::int64_t kMaxChunkTokens = 512;
// How many bytes of logits a Completion keeps for comparisons.
inline constexpr std::int64_t kKeptLogitBytes = std::int64_t{64} << 20;

struct Request {
  std::vector<std::int32_t> prompt_ids;
  std::int64_t max_new_tokens = 64;
  std::vector<std::int32_t> eos_token_ids;  // each of them ends the text
  bool ignore_eos = false;
  SamplingParams sampling;
};

enum class FinishReason : std::uint8_t {
  eos,      // the model ended its text
  length,   // max_new_tokens
  context,  // the KV cache is full
};
// "end of text", "max tokens", "context full".
std::string name_of(FinishReason reason);

struct Completion {
  std::vector<std::int32_t> ids;  // new tokens; an end-of-text token is the last one
  FinishReason reason = FinishReason::length;
  std::vector<Tensor>
      logits;  // of each new token, [1, vocab], as long as they fit the given memory
};

// Where the logits of the next step come from: ranks, or one device.
using Model = std::function<ConstTensorView(const Step& step)>;

// Runs one request to its end, with the prompt in chunks of at most `max_chunk` tokens.
// `on_token` is called with each new token. Keeps logits for up to `kept_logit_bytes` bytes.
Completion generate(const Model& model,
                    const Request& request,
                    std::int64_t max_context,
                    std::int64_t max_chunk,
                    std::int64_t kept_logit_bytes,
                    const std::function<void(std::int32_t)>& on_token = {});

// Rank 0's model: tells every rank the step, then computes its own part. The other ranks follow()
// until stop() is called.
class Leader {
 public:
  Leader(const RankContext& ctx, Decoder& decoder) : ctx_(ctx), decoder_(decoder) {}
  ConstTensorView run(const Step& step, const Tap& tap = {});
  // Sends the other ranks home.
  void stop();

 private:
  const RankContext& ctx_;
  Decoder& decoder_;
  std::vector<std::byte> message_;
};

// What every other rank does: steps until rank 0 stops it.
void follow(const RankContext& ctx, Decoder& decoder, const Tap& tap = {});

}  // namespace tp

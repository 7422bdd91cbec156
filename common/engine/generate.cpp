#include "common/engine/generate.h"

#include <algorithm>

#include "common/engine/step.h"

namespace tp {

std::string name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::eos:
      return "end of text";
    case FinishReason::length:
      return "max tokens";
    case FinishReason::context:
      return "context full";
  }
  return "?";
}

namespace {

// Runs the whole prompt; returns the logits of its last token.
ConstTensorView prefill(const Model& model,
                        const std::vector<std::int32_t>& ids,
                        std::int64_t max_chunk) {
  ConstTensorView logits;
  const auto total = static_cast<std::int64_t>(ids.size());
  for (std::int64_t begin = 0; begin < total; begin += max_chunk) {
    const std::int64_t end = std::min(begin + max_chunk, total);
    logits = model({begin, 1, {ids.begin() + begin, ids.begin() + end}});
  }
  return logits;
}

Tensor copy_of(ConstTensorView tensor) {
  Tensor copy = Tensor::on_host(tensor.shape);
  copy_host(tensor, copy);
  return copy;
}

}  // namespace

Completion generate(const Model& model,
                    const Request& request,
                    std::int64_t max_context,
                    std::int64_t max_chunk,
                    std::int64_t kept_logit_bytes,
                    const std::function<void(std::int32_t)>& on_token) {
  Completion done;
  auto position = static_cast<std::int64_t>(request.prompt_ids.size());
  ConstTensorView logits = prefill(model, request.prompt_ids, max_chunk);
  for (;;) {
    if (logits.bytes() <= kept_logit_bytes) {
      kept_logit_bytes -= logits.bytes();
      done.logits.push_back(copy_of(logits));
    }
    const std::int32_t id = sample(logits, request.sampling, done.ids.size());
    done.ids.push_back(id);
    if (on_token) on_token(id);
    const bool is_eos = std::find(request.eos_token_ids.begin(), request.eos_token_ids.end(), id) !=
                        request.eos_token_ids.end();
    done.reason = FinishReason::eos;
    if (is_eos && !request.ignore_eos) return done;
    done.reason = FinishReason::length;
    if (static_cast<std::int64_t>(done.ids.size()) >= request.max_new_tokens) return done;
    done.reason = FinishReason::context;  // the last token of a text needs no place in the cache
    if (position >= max_context) return done;
    logits = model({position++, 1, {id}});
  }
}

// [region lead_and_follow]
ConstTensorView Leader::run(const Step& step, const Tap& tap) {
  step.encode(message_);
  ctx_.group.broadcast(message_, 0);
  return decoder_.forward(ctx_, step.ids, step.first_position, step.logit_rows, tap);
}

void Leader::stop() {
  Step().encode(message_);
  ctx_.group.broadcast(message_, 0);
}

void follow(const RankContext& ctx, Decoder& decoder, const Tap& tap) {
  std::vector<std::byte> message;
  for (;;) {
    ctx.group.broadcast(message, 0);
    const Step step = Step::decode(message);
    if (step.stop()) return;
    decoder.forward(ctx, step.ids, step.first_position, step.logit_rows, tap);
  }
}
// [end lead_and_follow]

}  // namespace tp

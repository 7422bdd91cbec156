#include "common/engine/generate.h"

namespace tp {

Completion generate(const Model& model,
                    const Request& request,
                    std::int64_t max_context,
                    std::int64_t kept_logit_bytes) {
  Completion done;
  auto position = static_cast<std::int64_t>(request.prompt_ids.size());
  ConstTensorView logits = model(request.prompt_ids, 0);
  for (;;) {
    if (logits.bytes() <= kept_logit_bytes) {
      kept_logit_bytes -= logits.bytes();
      done.logits.push_back(Tensor::on_host(logits.shape));
      copy_host(logits, done.logits.back());
    }
    const std::int32_t id = sample(logits, request.sampling, done.ids.size());
    done.ids.push_back(id);
    done.reason = FinishReason::eos;
    if (request.ends_with(id)) return done;
    done.reason = FinishReason::length;
    if (static_cast<std::int64_t>(done.ids.size()) >= request.max_new_tokens) return done;
    done.reason = FinishReason::context;  // the last token of a text needs no place in the cache
    if (position >= max_context) return done;
    logits = model(std::span(&id, 1), position++);
  }
}

}  // namespace tp

// One request on one device: what the engine is compared with. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/engine/request.h"

namespace tp {

// Runs tokens at first_position, ... of the only sequence; returns the logits of the last one,
// [1, vocab].
using Model =
    std::function<ConstTensorView(std::span<const std::int32_t> ids, std::int64_t first_position)>;

// Runs one request to its end: no batch, no blocks, no scheduler. `max_context` is how many tokens
// can be in the cache. Keeps logits of up to `kept_logit_bytes` bytes.
Completion generate(const Model& model,
                    const Request& request,
                    std::int64_t max_context,
                    std::int64_t kept_logit_bytes);

}  // namespace tp

// Looking at what a decoder computes on the way. [introduced in chapter 06]
#pragma once

#include <functional>
#include <string>

#include "common/core/tensor.h"

namespace tp {

// Called with the output of each module while a decoder runs: "embedding", then for each
// layer "layer 3 q", "... k" (both behind RoPE), "... v", "... attention", "... o_proj sum",
// "... down_proj sum", "... output", and at last "final norm" and "logits". Empty in normal operation.
using Tap = std::function<void(const std::string& name, ConstTensorView output)>;

}  // namespace tp

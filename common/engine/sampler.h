// Choosing the next token from logits. [introduced in chapter 06]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace tp {

// How a request wants its tokens chosen. The defaults are greedy.
struct SamplingParams {
  double temperature = 0;  // 0 (or below 1e-5, where a division could overflow): greedy
  std::int64_t top_k = 0;  // keep the k most likely; 0, -1 or more than there are: off
  double top_p = 1;  // keep the fewest most likely whose probabilities reach top_p, at least one
  std::uint64_t seed = 1;

  bool greedy() const { return temperature < 1e-5; }
  // What is wrong with the values, one line each.
  std::vector<std::string> problems() const;
};

// A token that may be chosen, and its probability among all that may.
struct Candidate {
  std::int32_t id = 0;
  double probability = 0;
};

// The tokens that may be chosen, after temperature, top-k and top-p in this order; probabilities are
// renormalised after top-k and at the end. With top-k or top-p the most likely comes first (among
// equals the lowest id), else they are in the order of their ids. A logit of -inf is a token that must not be chosen.
// Shapes: logits [1, vocab] f32.
// Errors: tp::Error (rank) "non-finite logits" if one is NaN or +inf, or all are -inf.
std::vector<Candidate> candidates(ConstTensorView logits, const SamplingParams& params);

// The token for draw number `draw` of the request: the same for the same logits, parameters and
// draw.
// Ranks: one rank only; the others are told.
std::int32_t sample(ConstTensorView logits, const SamplingParams& params, std::uint64_t draw);

}  // namespace tp

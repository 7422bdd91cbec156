// What fits on tp_size x pp_size cards. [introduced in chapter 08]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/plan/storage.h"
#include "common/plan/weight_bytes.h"

namespace tp {

// What a card needs beside weights and KV cache. Source: article 002, "每 Rank 额外开销".
struct Overhead {
  std::int64_t context_bytes = 0;        // of the driver and the libraries
  std::int64_t communication_bytes = 0;  // buffers of the communicator
  std::int64_t activation_bytes = 0;     // results of the largest step, and workspace

  std::int64_t total() const { return context_bytes + communication_bytes + activation_bytes; }
};

// What is to be planned.
struct PlanInput {
  ModelConfig config;
  WeightStorage weights;
  NumberFormat kv{"bf16", 16};
  std::int64_t block_size = 16;  // tokens
  std::int64_t card_bytes = 0;
  std::int64_t utilization_ppm = 900'000;  // share of the card that may be used, in millionths
  Overhead overhead;                       // of each card
  std::int64_t max_model_len = 0;          // tokens of each request in the cache
  std::int64_t concurrency = 1;            // requests at the same time
  bool uneven = false;

  // floor(utilization * card_bytes).
  std::int64_t usable_bytes() const;
  std::int64_t blocks_per_request() const;
  std::int64_t needed_blocks() const { return concurrency * blocks_per_request(); }
};

// One card of a layout.
struct CardPlan {
  CardPlace place;
  WeightBytes weights;
  std::int64_t kv_heads = 0;            // that it keeps
  std::int64_t kv_bytes_per_token = 0;  // in its layers
  Overhead overhead;
  std::int64_t kv_budget_bytes = 0;  // what is left for the KV cache; below 0 if nothing is
  std::int64_t blocks = 0;           // that fit into it
};

struct LayoutPlan {
  int tp_size = 1;
  int pp_size = 1;
  std::vector<std::string> problems;  // why it cannot be; then there are no cards
  std::vector<std::string> notes;     // what it costs, such as pads of the vocabulary
  std::vector<CardPlan> cards;        // stage by stage, in rank order
  std::int64_t blocks = 0;            // of the pool, the same on every card
  std::size_t limiting = 0;           // the card that allows no more

  int num_cards() const { return tp_size * pp_size; }
  bool usable() const { return problems.empty(); }
  const CardPlan& tightest() const { return cards.at(limiting); }
  bool weights_fit() const { return usable() && tightest().kv_budget_bytes >= 0; }
  std::int64_t tokens(const PlanInput& input) const { return blocks * input.block_size; }
  std::int64_t requests(const PlanInput& input) const;
  bool holds(const PlanInput& input) const { return usable() && blocks >= input.needed_blocks(); }
};

// Sees each card after its sizes were worked out and before what fits is. Tests and faults use it.
using CardHook = std::function<void(const PlanInput& input, CardPlan& card)>;

// Every reason why the layout cannot be, one line each: heads, KV heads, intermediate size, layers,
// and quantisation groups that a cut would go through.
std::vector<std::string> layout_problems(const PlanInput& input, int tp_size, int pp_size);

LayoutPlan plan_layout(const PlanInput& input, int tp_size, int pp_size, const CardHook& hook = {});

// The tp sizes, of at most `most` ranks, that are usable on one stage.
std::vector<int> usable_tp(const PlanInput& input, int most);

}  // namespace tp

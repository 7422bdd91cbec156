#include "plan_faults.h"

#include "common/parallel/faults.h"

namespace tp {

namespace {

// "KV heads / tp", as if a head could be cut: past the number of KV heads it promises too much.
void divide_kv_by_tp(const PlanInput& input, CardPlan& card) {
  const std::int64_t layers = card.place.layers(input.config.num_hidden_layers).size();
  card.kv_bytes_per_token =
      2 * layers * input.config.kv_size() * input.kv.bits / 8 / card.place.tp_size;
}

// As if one process had a context and buffers for all cards.
void count_overhead_once(const PlanInput&, CardPlan& card) {
  if (card.place.rank != 0 || card.place.stage != 0) card.overhead = {};
}

// A tied head planned as a matrix of its own.
void count_tied_head_twice(const PlanInput& input, CardPlan& card) {
  const CardPlace& place = card.place;
  if (!input.config.tie_word_embeddings || place.pp_size > 1) return;
  const std::int64_t rows = (input.config.vocab_size + place.tp_size - 1) / place.tp_size;
  card.weights.sharded += input.weights.other_bytes(rows * input.config.hidden_size);
}

}  // namespace

std::vector<Fault> plan_faults() {
  std::vector<Fault> faults{
      {"kv_divided_by_tp", "the KV cache is divided by tp although KV heads are copied"},
      {"overhead_counted_once", "overhead is taken from the first card only"},
      {"tied_head_counted_twice", "lm_head is counted although it is the embedding"}};
  for (const Fault& fault : mismatched_collective_faults()) faults.push_back(fault);
  return faults;
}

CardHook hook_of(const std::string& fault) {
  if (fault == "kv_divided_by_tp") return divide_kv_by_tp;
  if (fault == "overhead_counted_once") return count_overhead_once;
  if (fault == "tied_head_counted_twice") return count_tied_head_twice;
  return {};
}

}  // namespace tp

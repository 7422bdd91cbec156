#include "common/plan/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/core/plural.h"
#include "common/device/batch.h"
#include "common/model/kv_cache.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

constexpr std::int64_t kMillion = 1'000'000;

ShardedSizes sizes_of(const ModelConfig& c) {
  return {c.num_attention_heads, c.num_key_value_heads, c.intermediate_size};
}

// A matrix whose input features are split must be cut between groups, and have whole groups.
void add_group_problems(const PlanInput& input, int tp_size, std::vector<std::string>& problems) {
  const ModelConfig& c = input.config;
  const std::int64_t group = input.weights.group;
  if (c.hidden_size % group != 0)
    problems.push_back(
        fmt::format("hidden_size={} is not a multiple of --quant-group {}", c.hidden_size, group));
  const auto add = [&](const char* what, std::int64_t units, std::int64_t unit) {
    if (!input.uneven && units % tp_size != 0) return;  // a problem already
    for (int rank = 0; rank < tp_size; ++rank) {
      const std::int64_t local = shard_range(units, rank, tp_size).size() * unit;
      if (local % group == 0) continue;
      problems.push_back(fmt::format(
          "{} has {} input features on rank {} of tp={}, which is not a multiple of --quant-group "
          "{} (remainder {})",
          what, local, rank, tp_size, group, local % group));
      return;
    }
  };
  add("o_proj", c.num_attention_heads, c.head_dim);
  add("down_proj", c.intermediate_size, 1);
}

// [region size_card]
CardPlan size_card(const PlanInput& input, const CardPlace& place) {
  const ModelConfig& c = input.config;
  const HeadShard heads =
      head_shard(c.num_attention_heads, c.num_key_value_heads, place.rank, place.tp_size);
  // One block of one token: the engine's own layout, in numbers instead of bytes.
  const KvLayout token{place.layers(c.num_hidden_layers).size(), heads.kv.size(), c.head_dim, 1, 1};
  CardPlan card;
  card.place = place;
  card.weights = weight_bytes(c, input.weights, place);
  card.kv_heads = heads.kv.size();
  card.kv_bytes_per_token = token.elements_per_block() * input.kv.bits / 8;
  card.overhead = input.overhead;
  return card;
}

void fit_card(const PlanInput& input, CardPlan& card) {
  card.kv_budget_bytes = input.usable_bytes() - card.weights.total() - card.overhead.total();
  card.blocks = std::max<std::int64_t>(0, card.kv_budget_bytes) /
                (card.kv_bytes_per_token * input.block_size);
}
// [end size_card]

void add_notes(const PlanInput& input, LayoutPlan& layout) {
  const std::int64_t vocab = input.config.vocab_size, tp = layout.tp_size;
  if (vocab % tp == 0) return;
  const std::int64_t rows = vocab_shard(vocab, 0, layout.tp_size).rows.size();
  layout.notes.push_back(
      fmt::format("vocab_size={} is padded to {}: {} rows per rank, {} (vocab_size % {} = {})",
                  vocab, rows * tp, rows, plural(rows * tp - vocab, "pad"), tp, vocab % tp));
}

}  // namespace

std::int64_t PlanInput::usable_bytes() const {
  return card_bytes / kMillion * utilization_ppm +
         card_bytes % kMillion * utilization_ppm / kMillion;
}

std::int64_t PlanInput::blocks_per_request() const {
  return blocks_for(max_model_len, block_size);
}

std::int64_t LayoutPlan::requests(const PlanInput& input) const {
  return blocks / input.blocks_per_request();
}

std::vector<std::string> layout_problems(const PlanInput& input, int tp_size, int pp_size) {
  const ModelConfig& c = input.config;
  std::vector<std::string> problems = tp_problems(sizes_of(c), tp_size, input.uneven);
  if (input.weights.format.quantized && tp_size <= c.num_attention_heads)
    add_group_problems(input, tp_size, problems);
  if (pp_size > c.num_hidden_layers)
    problems.push_back(fmt::format("num_hidden_layers={}: fewer layers than pp={} stages",
                                   c.num_hidden_layers, pp_size));
  return problems;
}

LayoutPlan plan_layout(const PlanInput& input, int tp_size, int pp_size, const CardHook& hook) {
  LayoutPlan layout{.tp_size = tp_size, .pp_size = pp_size};
  layout.problems = layout_problems(input, tp_size, pp_size);
  add_notes(input, layout);
  if (!layout.usable()) return layout;
  for (int stage = 0; stage < pp_size; ++stage)
    for (int rank = 0; rank < tp_size; ++rank) {
      CardPlan& card = layout.cards.emplace_back(size_card(input, {tp_size, pp_size, rank, stage}));
      if (hook) hook(input, card);
      fit_card(input, card);
    }
  const auto least = std::min_element(
      layout.cards.begin(), layout.cards.end(), [](const CardPlan& a, const CardPlan& b) {
        return a.blocks != b.blocks ? a.blocks < b.blocks : a.kv_budget_bytes < b.kv_budget_bytes;
      });
  layout.limiting = static_cast<std::size_t>(least - layout.cards.begin());
  layout.blocks = least->blocks;
  return layout;
}

std::vector<int> usable_tp(const PlanInput& input, int most) {
  std::vector<int> usable;
  for (int tp_size = 1; tp_size <= most; ++tp_size)
    if (layout_problems(input, tp_size, 1).empty()) usable.push_back(tp_size);
  return usable;
}

}  // namespace tp

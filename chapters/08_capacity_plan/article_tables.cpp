#include "article_tables.h"

#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "common/core/plural.h"
#include "common/model/bundled.h"
#include "common/plan/cards.h"
#include "common/plan/choose.h"

namespace tp {

namespace {

constexpr int kMostRanks = 64;
constexpr std::int64_t kContext = 4096;  // what the oldest of these models can have

// A row of the article's table.
struct ArticleRow {
  const char* name;
  const char* shape;  // of a model of that size
  const char* card;   // that the row names, or means
  int min_gpus = 1;
  int tp = 1;
  int gigabytes = 0;  // of weights on each GPU
};
constexpr ArticleRow kRows[] = {{"7B", "llama-2-7b", "a100-80g", 1, 1, 14},
                                {"13B", "llama-2-13b", "a100-80g", 1, 2, 13},
                                {"34B", "codellama-34b", "a100-80g", 1, 2, 34},
                                {"70B", "llama-3-70b", "a100-80g", 1, 4, 35},
                                {"70B_40G", "llama-3-70b", "a100-40g", 4, 4, 35},
                                {"405B", "llama-3.1-405b", "h100-80g", 8, 8, 101}};

// One request of kContext tokens on 0.9 of the card, with the overhead that is usual here.
PlanInput input_of(const ArticleRow& row, const char* dtype) {
  PlanInput input;
  input.config =
      ModelConfig::for_plan(bundled_model(std::string("shapes/") + row.shape) / "config.json", {});
  input.weights.format = number_format(dtype);
  input.kv = number_format("f16");
  input.card_bytes = card_named(row.card).memory_bytes();
  input.overhead = {std::int64_t{500} << 20, std::int64_t{300} << 20, std::int64_t{1} << 30};
  input.max_model_len = kContext;
  return input;
}

// The smallest tp that has room for the load.
std::optional<LayoutPlan> smallest(const PlanInput& input) {
  for (const int tp_size : usable_tp(input, kMostRanks)) {
    LayoutPlan layout = plan_layout(input, tp_size, 1);
    if (layout.holds(input)) return layout;
  }
  return std::nullopt;
}

double gigabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

double weights_gb(const LayoutPlan& layout) {
  return gigabytes(layout.tightest().weights.total());
}

// What is to be said of a row, and what it should say.
struct Judgement {
  std::string verdict, should_say;
};

Judgement judge(const ArticleRow& row, const PlanInput& input, const LayoutPlan& there) {
  const std::optional<LayoutPlan> least = smallest(input);
  const int cards = least ? least->num_cards() : 0;
  const std::string gb = fmt::format("{:.1f} GB", weights_gb(there));
  if (std::abs(weights_gb(there) - row.gigabytes) > 1)
    return {"wrong: weights", fmt::format("tp {}, {}", row.tp, gb)};
  if (!there.holds(input)) {
    // Only smaller weights make it fit, and then they are not as large as the row says.
    std::string right;
    for (const char* dtype : {"f16", "fp8", "int4"})
      if (const auto fits = smallest(input_of(row, dtype)))
        right += fmt::format("{}{}: {} cards, {:.1f} GB each", right.empty() ? "" : "; ", dtype,
                             fits->num_cards(), weights_gb(*fits));
    return {fmt::format("wrong: {} do not fit {} GiB", gb, input.card_bytes >> 30), right};
  }
  if (cards != row.min_gpus)
    return {fmt::format("wrong: {} cannot hold it", plural(row.min_gpus, "card")),
            fmt::format("at least {} cards; tp {}, {}", cards, row.tp, gb)};
  return {"right", fmt::format("at least {}; tp {}, {}", plural(cards, "card"), row.tp, gb)};
}

}  // namespace

void show_article_001(Report& report) {
  report.section("Article 001: its table of tp sizes");
  report.line(fmt::format(
      "planned: f16 weights and KV cache, 0.9 of the card, 1824 MiB overhead, one request of {} "
      "tokens",
      kContext));
  Table table{"article_001",
              {"row", "card", "least cards, article", "least cards", "tp", "GB per card, article",
               "GB per card", "left for KV, GB", "verdict", "it should say"},
              {}};
  for (const ArticleRow& row : kRows) {
    const PlanInput input = input_of(row, "f16");
    const LayoutPlan there = plan_layout(input, row.tp, 1);
    const std::optional<LayoutPlan> least = smallest(input);
    const Judgement judgement = judge(row, input, there);
    table.rows.push_back({row.name, row.card, std::to_string(row.min_gpus),
                          least ? std::to_string(least->num_cards()) : "none",
                          std::to_string(row.tp), std::to_string(row.gigabytes),
                          fmt::format("{:.1f}", weights_gb(there)),
                          fmt::format("{:.1f}", gigabytes(there.tightest().kv_budget_bytes)),
                          judgement.verdict, judgement.should_say});
  }
  report.table(table);
  report.line(
      "70B_40G: its figures are right, its remark \"35GB > 40GB\" has the sign wrong. 405B: 101 GB "
      "are 16-bit weights,");
  report.line("which quantization, named in its remark, would make smaller.");
}

void show_article_003(Report& report) {
  report.section("Article 003: do stages leave the KV cache of a card as it is?");
  PlanInput input = input_of(kRows[3], "bf16");
  report.line("Llama-3-70B, bytes per token in the KV cache of one card:");
  Table table{"article_003", {"tp", "pp", "layers", "KV heads", "KV bytes per token"}, {}};
  std::int64_t by_tp = 0, by_pp = 0, by_both = 0;
  for (const auto& [tp_size, pp_size, bytes] : {std::tuple<int, int, std::int64_t*>{1, 1, nullptr},
                                                {4, 1, &by_tp},
                                                {1, 4, &by_pp},
                                                {2, 2, &by_both}}) {
    const CardPlan card = plan_layout(input, tp_size, pp_size).cards.at(0);
    if (bytes != nullptr) *bytes = card.kv_bytes_per_token;
    table.rows.push_back({std::to_string(tp_size), std::to_string(pp_size),
                          std::to_string(card.place.layers(input.config.num_hidden_layers).size()),
                          std::to_string(card.kv_heads), std::to_string(card.kv_bytes_per_token)});
  }
  report.table(table);
  report.line(
      "No: a stage has all tokens of a sequence, but only for its own layers. Where both divide, 4 "
      "stages save as much as 4 ranks.");
  report.expect("KV bytes per token, tp 1 pp 4 against tp 4 pp 1", by_pp, by_tp);
  report.expect("KV bytes per token, tp 2 pp 2 against tp 4 pp 1", by_both, by_tp);
}

}  // namespace tp

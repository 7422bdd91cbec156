// Chapter 08: a capacity plan, before a card is bought or a model is loaded.
//
// You learn:  which tp and pp a model can have, and every reason why not; what weights, KV cache and
//             overhead take on each card; how many tokens and requests that leaves room for.
// New here:   plan/ (cards, storage, weight bytes, layouts, remedies), the page of --report.
// Run:        ch08_capacity_plan --card a100-80g       last line: PASS
//             ch08_capacity_plan --verify              plan and engine must agree to the byte
//
// Nothing is loaded: sizes come from a config.json. Defaults: the shape of Llama-3-70B (80 layers,
// hidden 8192, 64 query heads and 8 KV heads of 128, intermediate 28672, vocabulary 128256).
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "article_tables.h"
#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/core/error.h"
#include "job.h"
#include "plan_faults.h"
#include "show_plan.h"
#include "verify.h"

using namespace tp;

namespace {

// Every card, added up again by hand. In the lesson the one with the least room is shown.
void compare_by_hand(Report& report,
                     const PlanInput& input,
                     const std::vector<LayoutPlan>& layouts,
                     bool lesson) {
  report.section("Compared with sums by hand");
  report.expect("parameters", parameter_count(input.config), parameters_by_hand(input.config));
  std::int64_t cards = 0, wrong = 0;
  for (const LayoutPlan& layout : layouts) {
    if (!layout.usable()) continue;
    const auto differs = [&](const CardPlan& card) {
      const HandCard hand = card_by_hand(input, card.place);
      return card.weights.total() != hand.weight_bytes ||
             card.kv_bytes_per_token != hand.kv_bytes_per_token ||
             card.kv_budget_bytes != hand.kv_budget_bytes;
    };
    cards += layout.num_cards();
    wrong += std::count_if(layout.cards.begin(), layout.cards.end(), differs);
    if (!lesson) continue;
    const CardPlan& card = layout.tightest();
    const HandCard hand = card_by_hand(input, card.place);
    const std::string name = fmt::format("tp {}, pp {}, ", layout.tp_size, layout.pp_size);
    report.expect(name + "weight bytes", card.weights.total(), hand.weight_bytes);
    report.expect(name + "KV bytes per token", card.kv_bytes_per_token, hand.kv_bytes_per_token);
    report.expect(name + "bytes left for KV", card.kv_budget_bytes, hand.kv_budget_bytes);
    report.expect(fmt::format("{}cards of {} that differ", name, layout.num_cards()),
                  std::count_if(layout.cards.begin(), layout.cards.end(), differs), 0);
  }
  if (!lesson) report.expect(fmt::format("cards of {} that differ", cards), wrong, 0);
}

// A fault that makes no difference would pass, and teach that it does none.
void check_fault_applies(const std::string& fault, const PlanJob& job, bool verify) {
  const CardHook hook = hook_of(fault);
  if (!fault.empty() && !hook && !verify)
    throw input_error(fmt::format("--fault {} without --verify: nothing communicates", fault));
  if (!hook) return;
  for (const LayoutSize& size : job.sizes) {
    const LayoutPlan right = plan_layout(job.input, size.tp_size, size.pp_size);
    const LayoutPlan wrong = plan_layout(job.input, size.tp_size, size.pp_size, hook);
    for (std::size_t i = 0; i < right.cards.size(); ++i)
      if (right.cards[i].kv_budget_bytes != wrong.cards[i].kv_budget_bytes ||
          right.cards[i].kv_bytes_per_token != wrong.cards[i].kv_bytes_per_token)
        return;
  }
  throw input_error(fmt::format(
      "--fault {}: makes no difference here. kv_divided_by_tp needs more ranks than KV heads, "
      "overhead_counted_once more than one card, tied_head_counted_twice a tied model on one stage",
      fault));
}

void lesson(const Options& options, const PlanOptions& plan_options, Report& report) {
  const PlanJob job = PlanJob::prepare(options, plan_options);
  check_fault_applies(options.fault, job, plan_options.verify);
  show_input(report, job);
  if (plan_options.verify) return verify_plan(job, options, report);

  const CardHook hook = hook_of(options.fault);
  std::vector<LayoutPlan> layouts;
  for (const LayoutSize& size : job.sizes)
    layouts.push_back(plan_layout(job.input, size.tp_size, size.pp_size, hook));
  show_layouts(report, job, layouts);
  if (job.lesson) {
    show_article_001(report);
    show_article_003(report);
    report.section("Communication");
    report.line("none: a plan is arithmetic, no rank runs (with --verify they do)");
  }
  show_choice(report, job, layouts, hook);
  compare_by_hand(report, job.input, layouts, job.lesson);
}

}  // namespace

int main(int argc, char** argv) {
  PlanOptions plan;
  ChapterSpec spec;
  spec.number = "08";
  spec.name = "capacity_plan";
  spec.lesson = "What fits on how many cards, to the byte, from a config.json alone.";
  spec.example =
      "ch08_capacity_plan --model config.json --card rtx-a6000 --cards 8 --concurrency 32";
  spec.default_dtype = "as stored";
  spec.dtypes = weight_format_names();
  spec.kv_dtypes = kv_format_names();
  spec.faults = plan_faults();
  spec.extra_options = plan_flags(plan);
  spec.what_runs = [&plan](const Options& options) {
    return plan.verify
               ? fmt::format(
                     "device cpu, ranks as threads, activations f32, seed {}; planned, then run",
                     options.seed)
               : std::string("planned from sizes alone: no device, no ranks, no weights");
  };
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    lesson(options, plan, report);
  });
}

#include "common/plan/choose.h"

#include <algorithm>

#include <fmt/format.h>

namespace tp {

namespace {

constexpr int kMostRanks = 256;
constexpr std::int64_t kLowerBy = 50'000;  // 0.05, as in the article: 0.90 to 0.85

std::string utilization_text(std::int64_t ppm) {
  return fmt::format("{:g}", static_cast<double>(ppm) / 1e6);
}

// Collects remedies of one layout.
class Pharmacy {
 public:
  Pharmacy(const PlanInput& input, const LayoutPlan& layout, const CardHook& hook)
      : input_(input), layout_(layout), hook_(hook) {}

  void add(const std::string& change, const PlanInput& changed, const std::string& remark) {
    add(change, changed, layout_.tp_size, remark);
  }
  void add(const std::string& change,
           const PlanInput& changed,
           int tp_size,
           const std::string& remark) {
    const LayoutPlan then = plan_layout(changed, tp_size, layout_.pp_size, hook_);
    Remedy remedy{change, {}, changed.needed_blocks(), remark};
    if (then.usable())
      remedy.blocks = then.blocks;
    else
      remedy.remark = fmt::format("{}", fmt::join(then.problems, "; "));
    remedies_.push_back(std::move(remedy));
  }

  void lower_utilization() {
    if (input_.utilization_ppm <= kLowerBy) return;
    PlanInput changed = input_;
    changed.utilization_ppm -= kLowerBy;
    add(fmt::format("--gpu-memory-utilization {} to {}", utilization_text(input_.utilization_ppm),
                    utilization_text(changed.utilization_ppm)),
        changed, "leaves more to others on the card, and less to the KV cache");
  }

  void halve_context() {
    if (input_.max_model_len < 2) return;
    PlanInput changed = input_;
    changed.max_model_len /= 2;
    add(fmt::format("--max-model-len {} to {}", input_.max_model_len, changed.max_model_len),
        changed, "the same room; each request needs less of it");
  }

  // The next usable tp; if an uneven split of it has no more room, also the first that has.
  void more_ranks(std::optional<int> cards_there) {
    bool any = false;
    for (int tp_size = layout_.tp_size + 1; tp_size <= kMostRanks; ++tp_size) {
      if (!layout_problems(input_, tp_size, layout_.pp_size).empty()) continue;
      const std::string change = fmt::format("--tp {} to {}", layout_.tp_size, tp_size);
      const int cards = tp_size * layout_.pp_size;
      if (cards_there && cards > *cards_there) {
        if (!any)
          remedies_.push_back({change,
                               {},
                               input_.needed_blocks(),
                               fmt::format("needs {} cards, there {} {}", cards,
                                           *cards_there == 1 ? "is" : "are", *cards_there)});
        return;
      }
      const bool gains =
          plan_layout(input_, tp_size, layout_.pp_size, hook_).blocks > layout_.blocks;
      if (any && !gains) continue;
      any = true;
      add(change, input_, tp_size,
          fmt::format("{} cards instead of {}{}", cards, layout_.num_cards(),
                      gains ? "" : ", and no more room: the fullest decides"));
      if (gains) return;
    }
    if (any) return;
    const int next = 2 * layout_.tp_size;
    remedies_.push_back(
        {fmt::format("--tp above {}", layout_.tp_size),
         {},
         input_.needed_blocks(),
         fmt::format("no larger tp is usable; tp {}: {}", next,
                     fmt::join(layout_problems(input_, next, layout_.pp_size), "; "))});
  }

  void smaller_weights(const char* name, const char* remark) {
    PlanInput changed = input_;
    changed.weights.format = number_format(name);
    if (changed.weights.format.bits >= input_.weights.format.bits) return;
    add(fmt::format("--dtype {} to {}", input_.weights.format.name, name), changed, remark);
  }

  void smaller_kv() {
    if (input_.kv.bits <= 8) return;
    PlanInput changed = input_;
    changed.kv = number_format("fp8");
    add(fmt::format("--kv-dtype {} to fp8", input_.kv.name), changed,
        "article 002; what it does to the output must be tested");
  }

  void fewer_requests() {
    const std::int64_t fit = layout_.requests(input_);
    if (fit < 1 || fit >= input_.concurrency) return;
    PlanInput changed = input_;
    changed.concurrency = fit;
    add(fmt::format("--concurrency {} to {}", input_.concurrency, fit), changed,
        "article 002; the others wait");
  }

  std::vector<Remedy> take() { return std::move(remedies_); }

 private:
  const PlanInput& input_;
  const LayoutPlan& layout_;
  const CardHook& hook_;
  std::vector<Remedy> remedies_;
};

}  // namespace

std::optional<std::size_t> smallest_that_holds(const PlanInput& input,
                                               std::span<const LayoutPlan> layouts) {
  std::optional<std::size_t> best;
  const auto size = [&](std::size_t i) {
    return std::pair(layouts[i].num_cards(), layouts[i].pp_size);
  };
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (layouts[i].holds(input) && (!best || size(i) < size(*best))) best = i;
  return best;
}

std::optional<std::size_t> roomiest(std::span<const LayoutPlan> layouts) {
  std::optional<std::size_t> best;
  const auto room = [&](std::size_t i) {
    return std::pair(layouts[i].blocks, layouts[i].tightest().kv_budget_bytes);
  };
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (layouts[i].usable() && (!best || room(i) > room(*best))) best = i;
  return best;
}

std::optional<KvStopsShrinking> kv_stops_shrinking(std::span<const LayoutPlan> layouts) {
  const auto kv_of = [](const LayoutPlan& layout) {  // of the card with the most
    std::int64_t bytes = 0;
    for (const CardPlan& card : layout.cards) bytes = std::max(bytes, card.kv_bytes_per_token);
    return bytes;
  };
  const LayoutPlan* least = nullptr;  // the first with the least
  const LayoutPlan* behind = nullptr;
  for (const LayoutPlan& layout : layouts) {
    if (!layout.usable() || (least != nullptr && layout.pp_size != least->pp_size)) continue;
    if (least == nullptr || kv_of(layout) < kv_of(*least)) {
      least = &layout;
      behind = nullptr;
    } else if (behind == nullptr) {
      behind = &layout;
    }
  }
  if (behind == nullptr) return std::nullopt;
  return KvStopsShrinking{least->tp_size, behind->tp_size, kv_of(*least)};
}

std::vector<Remedy> remedies(const PlanInput& input,
                             const LayoutPlan& layout,
                             std::optional<int> cards_there,
                             const CardHook& hook) {
  Pharmacy pharmacy(input, layout, hook);
  pharmacy.lower_utilization();
  pharmacy.halve_context();
  pharmacy.more_ranks(cards_there);
  pharmacy.smaller_weights("int4", "a quarter of 16 bits and scales; article 001 says half");
  pharmacy.smaller_weights("fp8", "half of 16 bits and scales");
  pharmacy.smaller_kv();
  pharmacy.fewer_requests();
  return pharmacy.take();
}

}  // namespace tp

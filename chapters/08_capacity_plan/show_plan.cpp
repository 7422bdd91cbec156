#include "show_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/core/plural.h"
#include "common/core/svg.h"
#include "common/plan/choose.h"

namespace tp {

namespace {

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", std::ldexp(static_cast<double>(bytes), -30));
}

std::string verdict_of(const PlanInput& input, const LayoutPlan& layout) {
  if (!layout.usable()) {
    std::string text = fmt::format("not usable: {}", fmt::join(layout.problems, "; "));
    for (const std::string& note : layout.notes) text += "; no obstacle: " + note;
    return text;
  }
  if (!layout.weights_fit())
    return fmt::format("weights and overhead do not fit: {} bytes too many",
                       -layout.tightest().kv_budget_bytes);
  if (layout.holds(input)) return "holds the load";
  const std::int64_t requests = layout.requests(input);
  if (requests == 0)
    return fmt::format("weights fit, but no request of {} does",
                       plural(input.max_model_len, "token"));
  return fmt::format("holds {} of {}", requests, plural(input.concurrency, "request"));
}

std::string place_of(const LayoutPlan& layout) {
  const CardPlace& place = layout.tightest().place;
  return fmt::format("stage {} rank {}", place.stage, place.rank);
}

// Everything of a row, for programs.
void record_layout(Report& report,
                   const PlanInput& input,
                   const LayoutPlan& layout,
                   std::size_t i) {
  const std::string row = fmt::format("/layouts/{}/", i);
  const auto record = [&](const char* key, std::int64_t value) { report.record(row + key, value); };
  record("tp", layout.tp_size);
  record("pp", layout.pp_size);
  record("cards", layout.num_cards());
  report.record(row + "usable", layout.usable());
  report.record(row + "verdict", verdict_of(input, layout));
  for (std::size_t p = 0; p < layout.problems.size(); ++p)
    report.record(fmt::format("{}problems/{}", row, p), layout.problems[p]);
  for (std::size_t n = 0; n < layout.notes.size(); ++n)
    report.record(fmt::format("{}notes/{}", row, n), layout.notes[n]);
  if (!layout.usable()) return;
  const CardPlan& card = layout.tightest();
  record("tightest_stage", card.place.stage);
  record("tightest_rank", card.place.rank);
  record("weight_bytes", card.weights.total());
  record("sharded_bytes", card.weights.sharded);
  record("replicated_bytes", card.weights.replicated);
  record("padded_bytes", card.weights.padded);
  record("kv_heads", card.kv_heads);
  record("kv_bytes_per_token", card.kv_bytes_per_token);
  record("context_bytes", card.overhead.context_bytes);
  record("communication_bytes", card.overhead.communication_bytes);
  record("activation_bytes", card.overhead.activation_bytes);
  record("kv_budget_bytes", card.kv_budget_bytes);
  record("blocks", layout.blocks);
  record("tokens", layout.tokens(input));
  record("requests", layout.requests(input));
  report.record(row + "holds_load", layout.holds(input));
}

void show_bytes(Report& report, const PlanInput& input, const std::vector<LayoutPlan>& layouts) {
  Table table{"bytes",
              {"tp", "pp", "card", "layers", "KV heads", "weights", "sharded", "replicated",
               "padded", "KV per token", "overhead", "left for KV"},
              {}};
  for (const LayoutPlan& layout : layouts) {
    if (!layout.usable()) continue;
    const CardPlan& card = layout.tightest();
    table.rows.push_back(
        {std::to_string(layout.tp_size), std::to_string(layout.pp_size), place_of(layout),
         std::to_string(card.place.layers(input.config.num_hidden_layers).size()),
         std::to_string(card.kv_heads), std::to_string(card.weights.total()),
         std::to_string(card.weights.sharded), std::to_string(card.weights.replicated),
         std::to_string(card.weights.padded), std::to_string(card.kv_bytes_per_token),
         std::to_string(card.overhead.total()), std::to_string(card.kv_budget_bytes)});
  }
  if (table.rows.empty()) return;
  report.section("Bytes on the card with the least room");
  report.line(
      "replicated: other ranks have the same (norms, copied KV heads); padded: zeros behind the "
      "vocabulary");
  report.table(table);
}

void show_kv_hint(Report& report, const std::vector<LayoutPlan>& layouts) {
  const auto stop = kv_stops_shrinking(layouts);
  if (!stop) return;
  report.line(fmt::format(
      "from tp {} to {} the KV cache on a card does not shrink: it has {} bytes per token. More "
      "ranks free only",
      stop->from, stop->to, stop->bytes_per_token));
  report.line(
      "weights from there on; a shorter context, fewer requests or a smaller --kv-dtype do "
      "more.");
  report.record("/kv_stops_shrinking_at_tp", std::int64_t{stop->to});
}

void show_remedies(Report& report,
                   const PlanJob& job,
                   const LayoutPlan& layout,
                   const CardHook& hook) {
  const PlanInput& input = job.input;
  report.section("Remedies");
  report.line(fmt::format("for tp {}, pp {}: {} fit{}, the load needs {}", layout.tp_size,
                          layout.pp_size, plural(layout.blocks, "block"),
                          layout.blocks == 1 ? "s" : "", input.needed_blocks()));
  Table table{"remedies", {"change", "blocks", "gained", "needed", "holds", "remark"}, {}};
  for (const Remedy& remedy : remedies(input, layout, job.cards_there, hook)) {
    const bool possible = remedy.blocks.has_value();
    table.rows.push_back({remedy.change, possible ? std::to_string(*remedy.blocks) : "none",
                          possible ? fmt::format("{:+}", *remedy.blocks - layout.blocks) : "none",
                          std::to_string(remedy.needed_blocks), remedy.holds() ? "yes" : "no",
                          remedy.remark});
  }
  report.table(table);
  report.line(
      "each by itself. Before all of them: see with nvidia-smi what the card really has free.");
}

}  // namespace

void show_input(Report& report, const PlanJob& job) {
  const PlanInput& input = job.input;
  const ModelConfig& c = input.config;
  report.line(
      fmt::format("model {}: {}, hidden {}, {} and {} of {}, intermediate {}, vocabulary {}{}",
                  job.model, plural(c.num_hidden_layers, "layer"), c.hidden_size,
                  plural(c.num_attention_heads, "query head"),
                  plural(c.num_key_value_heads, "KV head"), c.head_dim, c.intermediate_size,
                  c.vocab_size, c.tie_word_embeddings ? ", lm_head tied to the embedding" : ""));
  report.line(
      fmt::format("{} parameters; weights {}{}, KV cache {} in blocks of {}", parameter_count(c),
                  input.weights.format.name,
                  input.weights.format.quantized
                      ? fmt::format(" (projections, a scale for each {})", input.weights.group)
                      : "",
                  input.kv.name, plural(input.block_size, "token")));
  report.record("/model", job.model);
  report.record("/parameters", parameter_count(c));
  report.record("/weights", std::string(input.weights.format.name));
  report.record("/kv", std::string(input.kv.name));
}

void show_layouts(Report& report, const PlanJob& job, const std::vector<LayoutPlan>& layouts) {
  const PlanInput& input = job.input;
  const Overhead& overhead = input.overhead;
  report.line(fmt::format("card {}: {}, of which {:g} may be used: {} bytes", job.card,
                          gib(input.card_bytes), static_cast<double>(input.utilization_ppm) / 1e6,
                          input.usable_bytes()));
  if (job.ecc_takes_memory)
    report.line(
        "with ECC on, less than this nominal memory can be used: check nvidia-smi, and give "
        "--card-memory-gib");
  report.line(fmt::format(
      "overhead of each card: context {} MiB, communication buffers {} MiB, activations {} MiB",
      overhead.context_bytes >> 20, overhead.communication_bytes >> 20,
      overhead.activation_bytes >> 20));
  report.line(fmt::format("load: {} of {}, {} each, {} in all",
                          plural(input.concurrency, "request"),
                          plural(input.max_model_len, "token"),
                          plural(input.blocks_per_request(), "block"), input.needed_blocks()));
  report.record("/card_bytes", input.card_bytes);
  report.record("/usable_bytes", input.usable_bytes());
  report.record("/max_model_len", input.max_model_len);
  report.record("/concurrency", input.concurrency);
  report.record("/needed_blocks", input.needed_blocks());

  show_bytes(report, input, layouts);
  report.section("What fits");
  Table table{"layouts", {"tp", "pp", "cards", "blocks", "tokens", "requests", "verdict"}, {}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const LayoutPlan& layout = layouts[i];
    record_layout(report, input, layout, i);
    const auto cell = [&](std::int64_t value) {
      return layout.usable() ? std::to_string(value) : std::string("-");
    };
    table.rows.push_back({std::to_string(layout.tp_size), std::to_string(layout.pp_size),
                          std::to_string(layout.num_cards()), cell(layout.blocks),
                          cell(layout.tokens(input)), cell(layout.requests(input)),
                          verdict_of(input, layout)});
  }
  report.table(table);
  report.line(
      fmt::format("requests: of {} each, at the same time", plural(input.max_model_len, "token")));
  if (job.all_usable)
    report.line("other tp sizes are not usable; --tp N says why, --cards N shows all of a machine");
  for (const LayoutPlan& layout : layouts)
    for (const std::string& note : layout.notes)
      if (layout.usable() && layout.pp_size == layouts[0].pp_size)
        report.line(fmt::format("tp {}: {}", layout.tp_size, note));
  if (layouts[0].usable() || layouts.size() > 1)
    report.picture(fmt::format("Memory of the card with the least room, {}", job.model),
                   draw_layouts(input, layouts));
}

void show_choice(Report& report,
                 const PlanJob& job,
                 const std::vector<LayoutPlan>& layouts,
                 const CardHook& hook) {
  const PlanInput& input = job.input;
  report.section("Smallest layout that holds the load");
  if (const auto smallest = smallest_that_holds(input, layouts)) {
    const LayoutPlan& layout = layouts[*smallest];
    report.line(fmt::format(
        "tp {}, pp {} on {}: a starting point, measure next. It has room for {}, {} {} asked for.",
        layout.tp_size, layout.pp_size, plural(layout.num_cards(), "card"),
        plural(layout.requests(input), "request"), input.concurrency,
        input.concurrency == 1 ? "is" : "are"));
    report.record("/smallest/tp", std::int64_t{layout.tp_size});
    report.record("/smallest/pp", std::int64_t{layout.pp_size});
    return show_kv_hint(report, layouts);
  }
  report.line("none of these");
  show_kv_hint(report, layouts);
  if (const auto nearest = roomiest(layouts)) show_remedies(report, job, layouts[*nearest], hook);
}

std::string draw_layouts(const PlanInput& input, const std::vector<LayoutPlan>& layouts) {
  constexpr std::size_t kMostBars = 40;
  constexpr double kLeft = 90, kWidth = 640, kBar = 18, kStep = 26, kTop = 44;
  std::vector<const LayoutPlan*> usable;
  for (const LayoutPlan& layout : layouts)
    if (layout.usable() && usable.size() < kMostBars) usable.push_back(&layout);

  auto most = static_cast<double>(input.card_bytes);
  for (const LayoutPlan* layout : usable)
    most = std::max(most, static_cast<double>(layout->tightest().weights.total() +
                                              layout->tightest().overhead.total()));
  const auto x_of = [&](std::int64_t bytes) {
    return kLeft + static_cast<double>(bytes) / most * kWidth;
  };
  const double bottom = kTop + static_cast<double>(usable.size()) * kStep;
  Svg svg(kLeft + kWidth + 20, bottom + 30, "Memory of a card for each layout");

  const std::vector<const char*> names{"weights, sharded", "weights, replicated or padded",
                                       "overhead", "KV of the load", "free"};
  const auto color = [&](std::size_t i) {
    return i + 1 == names.size() ? Svg::faint_color() : Svg::series_color(i);
  };
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double x = kLeft + static_cast<double>(i) * 130 + (i > 1 ? 60 : 0);
    svg.rect({x, 10, 12, 12}, color(i));
    svg.text({x + 16, 20}, names[i]);
  }
  for (std::size_t b = 0; b < usable.size(); ++b) {
    const LayoutPlan& layout = *usable[b];
    const CardPlan& card = layout.tightest();
    const double y = kTop + static_cast<double>(b) * kStep;
    svg.text({kLeft - 6, y + 13}, fmt::format("tp {} pp {}", layout.tp_size, layout.pp_size),
             Svg::Anchor::end);
    const std::int64_t block_bytes = card.kv_bytes_per_token * input.block_size;
    const std::int64_t kv = std::min(layout.blocks, input.needed_blocks()) * block_bytes;
    const std::vector<std::int64_t> parts{
        card.weights.sharded, card.weights.replicated + card.weights.padded, card.overhead.total(),
        kv, std::max<std::int64_t>(0, card.kv_budget_bytes - kv)};
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      svg.rect({x_of(at), y, x_of(at + parts[i]) - x_of(at), kBar}, color(i),
               fmt::format("{}: {} bytes", names[i], parts[i]));
      at += parts[i];
    }
  }
  for (const auto& [bytes, name] :
       {std::pair(input.usable_bytes(), "may be used"), std::pair(input.card_bytes, "card")})
    svg.line({x_of(bytes), kTop - 8}, {x_of(bytes), bottom});
  svg.text({x_of(input.usable_bytes()), bottom + 16}, gib(input.usable_bytes()) + " may be used",
           Svg::Anchor::end);
  return svg.to_string();
}

}  // namespace tp

#include "small_examples.h"

#include <fmt/format.h>

#include "by_hand.h"
#include "common/comm/ledger.h"
#include "common/core/matrix.h"
#include "common/parallel/gated_mlp.h"
#include "common/parallel/run_ranks.h"
#include "common/parallel/shards.h"

namespace tp {

void show_why_column_then_row(Report& report) {
  report.section("Why column-parallel comes first");
  report.line("Row-parallel first leaves parts of sums, say 3 on rank 0 and -3 on rank 1.");
  report.expect("activation of the sum, GELU(3 + -3)", fmt::format("{:.4f}", gelu(3 + -3)),
                "0.0000");
  report.expect("sum of the activations, GELU(3) + GELU(-3) (wrong)",
                fmt::format("{:.4f}", gelu(3) + gelu(-3)), "2.9919");
  report.line("Column-parallel first leaves whole features: each rank activates its own.");
}

namespace {

constexpr std::int64_t kFeatures = 4;
// Rows 0 to 3 are gate, rows 4 to 7 are up; hidden size 1.
const Matrix kFused(2 * kFeatures, 1, {1, 2, 3, 4, 1, -1, 2, 0.5f});
const Matrix kOne(1, 1, {1});
const Matrix kDown(1, kFeatures, {1, 1, 1, 1});

// Each rank's addend of down(silu(gate(1)) * up(1)); `load` gives the rank its rows of gate and up.
template <class Load>
std::vector<double> addends_of_two_ranks(const Load& load) {
  const std::vector<RankOutput> ranks = run_ranks(Launch{}, [&](RankContext& ctx, RankOutput& out) {
    const GatedMlp mlp{load(ctx), RowParallelLinear::shard(ctx, {kDown.view()})};
    const auto allocate = [&](std::int64_t columns) {
      return ctx.device.allocate({1, columns}, DType::f32, "activations");
    };
    const Tensor x = ctx.device.write(kOne.view(), "activations");
    Tensor gate_up = allocate(kFeatures), activated = allocate(kFeatures / 2), y = allocate(1);
    out.keep("partial", mlp.partial(ctx, x, gate_up, activated, y).addend);
  });
  return {ranks[0].tensor("partial").row<float>(0)[0], ranks[1].tensor("partial").row<float>(0)[0]};
}

// The figure with four digits, which f32 has to spare.
std::string figure(double value) {
  return fmt::format("{:.4f}", value);
}

}  // namespace

void show_fused_gate_up(Report& report) {
  report.section("A fused gate_up matrix");
  report.line(
      "hidden 1, x = 1, gate = [1, 2, 3, 4], up = [1, -1, 2, 0.5], down all ones, two ranks");
  report.line(
      "Stored rows: g0 g1 g2 g3 u0 u1 u2 u3. Split part by part: g0 g1 u0 u1 | g2 g3 u2 u3.");
  const ConstTensorView gate = kFused.view().rows_in({0, kFeatures});
  const ConstTensorView up = kFused.view().rows_in({kFeatures, 2 * kFeatures});
  const auto parts = addends_of_two_ranks([&](const RankContext& ctx) {
    return ColumnParallelLinear::shard_fused(ctx, {{gate}, {up}});
  });
  report.expect("addend of rank 0", figure(parts[0]), "-1.0305");
  report.expect("addend of rank 1", figure(parts[1]), "7.6795");
  report.expect("sum", figure(parts[0] + parts[1]), "6.6489");

  report.line(
      "Cut through the middle: g0 g1 g2 g3 | u0 u1 u2 u3; rank 0 takes two gate rows for up.");
  const auto halves = addends_of_two_ranks(
      [&](const RankContext& ctx) { return ColumnParallelLinear::shard(ctx, {kFused.view()}); });
  report.expect("sum (wrong)", figure(halves[0] + halves[1]), "10.5672");

  const bool refused =
      !tp_problems({.heads = 2, .kv_heads = 2, .intermediate = 3}, 2, false).empty();
  report.expect("intermediate size 3 on two ranks, although 6 fused rows could be halved",
                refused ? "refused" : "accepted", "refused");
}

void show_price_list(Report& report) {
  constexpr std::int64_t kHidden = 8192, kIntermediate = 28672, kBytes = 4;  // Llama-3-70B, f32
  report.section("The price of one MLP of a 70B model");
  report.line("hidden 8192, intermediate 28672, activations and partial sums f32");
  Table table{"price_list_70b",
              {"tokens", "ranks", "form", "operation", "payload bytes", "ring bytes per rank"},
              {}};
  for (const std::int64_t tokens : {1, 1024}) {
    for (const int ranks : {2, 8}) {
      const auto add_row = [&](const char* form, Op op, std::int64_t width) {
        const std::int64_t payload = tokens * width * kBytes;
        table.rows.push_back({std::to_string(tokens), std::to_string(ranks), form,
                              std::string(name_of(op)), std::to_string(payload),
                              std::to_string(link_bytes(op, payload, ranks))});
      };
      add_row("paired", Op::all_reduce, kHidden);
      add_row("naive", Op::all_gather, kIntermediate);
      add_row("naive", Op::all_reduce, kHidden);
    }
  }
  report.table(table);
  report.line(
      "Predicted from the sizes. Partial sums travel as f32; bf16 would halve the bytes and round "
      "each addend.");
}

}  // namespace tp

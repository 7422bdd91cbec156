#include "small_examples.h"

#include <fmt/format.h>

#include "by_hand.h"
#include "common/comm/ledger.h"
#include "common/core/error.h"
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

// down is all ones, so each rank's addend is the sum of silu(gate) * up over its features.
double rank_sum(const std::vector<double>& gate, const std::vector<double>& up) {
  double sum = 0;
  for (std::size_t i = 0; i < gate.size(); ++i) sum += silu(gate[i]) * up[i];
  return sum;
}

}  // namespace

void show_fused_gate_up(Report& report) {
  report.section("A fused gate_up matrix");
  report.line("hidden 1, x = 1, gate = [1, 2, 3, 4], up = [1, -1, 2, 0.5], down all ones");
  report.line(
      "stored rows: g0 g1 g2 g3 u0 u1 u2 u3; rank 0 takes g0 g1 u0 u1, rank 1 takes g2 g3 u2 u3");
  const double rank0 = rank_sum({1, 2}, {1, -1}), rank1 = rank_sum({3, 4}, {2, 0.5});
  report.expect("addend of rank 0", fmt::format("{:.6f}", rank0), "-1.030536");
  report.expect("addend of rank 1", fmt::format("{:.6f}", rank1), "7.679472");
  report.expect("sum", fmt::format("{:.6f}", rank0 + rank1), "6.648937");
  // Cut through the middle, rank 0 has all gate rows and takes two of them for up.
  const double wrong = rank_sum({1, 2}, {3, 4}) + rank_sum({1, -1}, {2, 0.5});
  report.expect("sum if the matrix is cut in halves (wrong)", fmt::format("{:.6f}", wrong),
                "10.567199");

  const ShardedSizes three_features{2, 2, 3};
  report.expect("3 features on 2 ranks, although the fused matrix has 6 rows",
                tp_problems(three_features, 2, false).empty() ? "accepted" : "refused", "refused");
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

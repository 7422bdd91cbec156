// Chapter 02: an MLP with exactly one all-reduce.
//
// You learn:  column-parallel then row-parallel needs no communication in between, because the
//             activation works on each feature alone; what the naive form costs; where biases go.
// New here:   GatedMlp, and the ledger as a proof of what was sent.
// Run:        ch02_mlp_one_all_reduce            last line: PASS
//
// Shapes, with the sizes of this chapter, pairwise different so that a swap shows:
//   x [tokens 5, hidden 48]   gate, up [intermediate 80, hidden 48]   down [hidden 48, inter 80]
#include <set>
#include <string>

#include <fmt/format.h>

#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/core/error.h"
#include "common/core/matrix.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/faults.h"
#include "common/parallel/gated_mlp.h"
#include "common/parallel/gather_columns.h"
#include "common/parallel/run_ranks.h"
#include "small_examples.h"

using namespace tp;

namespace {

constexpr std::int64_t kTokens = 5, kHidden = 48, kInter = 80;

// Weights as stored, [out, in]; biases in one row.
struct Inputs {
  Matrix x;
  Tensor gate, up, down;
  Matrix gate_bias, up_bias, down_bias;
};

Inputs make_inputs(const Options& options) {
  const DType dtype = dtype_from_name(options.dtype.empty() ? "f32" : options.dtype);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  return {random_matrix(kTokens, kHidden, seed),
          to_tensor(random_matrix(kInter, kHidden, seed + 1), dtype),
          to_tensor(random_matrix(kInter, kHidden, seed + 2), dtype),
          to_tensor(random_matrix(kHidden, kInter, seed + 3), dtype),
          random_matrix(1, kInter, seed + 4),
          random_matrix(1, kInter, seed + 5),
          random_matrix(1, kHidden, seed + 6)};
}

// One device, which knows nothing of ranks. Without a gate: y = down(gelu(up(x))).
// [region one_device]
struct OneDevice {
  Matrix h;  // the activated intermediate features
  Matrix y;
};
OneDevice run_one_device(const Inputs& in, bool gated) {
  const std::unique_ptr<Device> device = make_cpu_device();
  Matrix h(kTokens, kInter), gate(kTokens, kInter), y(kTokens, kHidden);
  device->matmul(in.x.view(), in.up, h.view(), SumBlocks::whole(kHidden));
  device->add_bias(h.view(), in.up_bias.view());
  if (gated) {
    device->matmul(in.x.view(), in.gate, gate.view(), SumBlocks::whole(kHidden));
    device->add_bias(gate.view(), in.gate_bias.view());
    device->gated_activation(gate.view(), h.view(), h.view(), Activation::silu);
  } else {
    device->activate(h.view(), Activation::gelu);
  }
  device->matmul(h.view(), in.down, y.view(), SumBlocks::whole(kInter));
  device->add_bias(y.view(), in.down_bias.view());
  return {h, y};
}
// [end one_device]

Tensor activations(RankContext& ctx, std::int64_t columns) {
  return ctx.device.allocate({kTokens, columns}, DType::f32, "activations");
}

// This rank's columns of down, and its bias.
RowParallelLinear load_down(const RankContext& ctx, const Inputs& in, const Options& options) {
  const Matrix bias = scale(in.down_bias, bias_factor(ctx, options.fault));
  return RowParallelLinear::shard(row_shard_owner(ctx, options.fault, kInter),
                                  {in.down, bias.view()});
}

// The lesson: gate and up by columns, down by rows, one all-reduce.
// [region paired]
void paired(RankContext& ctx, RankOutput& out, const Inputs& in, const Options& options) {
  const GatedMlp mlp{ColumnParallelLinear::shard_fused(
                         ctx, {{in.gate, in.gate_bias.view()}, {in.up, in.up_bias.view()}}),
                     load_down(ctx, in, options)};
  const Tensor x = ctx.device.write(in.x.view(), "activations");  // the same on every rank
  Tensor gate_up = activations(ctx, 2 * mlp.intermediate_local());
  Tensor activated = activations(ctx, mlp.intermediate_local());
  Tensor y = activations(ctx, kHidden);

  const PartialSum partial = mlp.partial(ctx, x, gate_up, activated, y);  // nothing is sent
  out.keep("partial", partial.addend);
  const TensorView sum = sum_over_ranks(ctx, partial, "down_proj");
  out.keep("sum", sum);
  ctx.device.add_bias(sum, mlp.down.bias);  // once, after the sum
  out.keep("y", sum);
}
// [end paired]

// The same without the pairing: each layer makes its output whole before the next one cuts it.
// [region naive]
void naive(RankContext& ctx, RankOutput& out, const Inputs& in, const Options& options) {
  const std::vector<Range> parts = shard_ranges(kInter, ctx.tp_size);
  const auto gate = ColumnParallelLinear::shard(ctx, {in.gate, in.gate_bias.view()});
  const auto up = ColumnParallelLinear::shard(ctx, {in.up, in.up_bias.view()});
  const RowParallelLinear down = load_down(ctx, in, options);
  const Tensor x = ctx.device.write(in.x.view(), "activations");
  Tensor gate_local = activations(ctx, gate.out_local()),
         up_local = activations(ctx, up.out_local());
  Tensor whole = activations(ctx, kInter), y = activations(ctx, kHidden);
  Tensor staging =
      ctx.device.allocate(gather_staging_shape(kTokens, parts), DType::f32, "activations");

  gate.forward(ctx, x, gate_local);
  up.forward(ctx, x, up_local);
  ctx.device.gated_activation(gate_local, up_local, gate_local, Activation::silu);
  all_gather_columns(ctx, gate_local, parts, staging, whole, "needless");
  down.forward(ctx, whole.view().columns_in(down.in_global), y, "down_proj");
  out.keep("y", y);
}
// [end naive]

// The form without a gate, as in GPT-2 and in the Megatron paper: y = down(gelu(up(x))).
void without_gate(RankContext& ctx, RankOutput& out, const Inputs& in, const Options& options) {
  const auto up = ColumnParallelLinear::shard(ctx, {in.up, in.up_bias.view()});
  const RowParallelLinear down = load_down(ctx, in, options);
  const Tensor x = ctx.device.write(in.x.view(), "activations");
  Tensor h = activations(ctx, up.out_local()), y = activations(ctx, kHidden);
  up.forward(ctx, x, h);
  ctx.device.activate(h, Activation::gelu);
  down.forward(ctx, h, y, "down_proj");
  out.keep("y", y);
}

template <class Form>
std::vector<RankOutput> run_form(const Options& options,
                                 int tp_size,
                                 const Inputs& in,
                                 const Form& form) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    ctx.group.barrier();  // so that no rank waits for a thread that is still starting
    form(ctx, out, in, options);
  });
}

void show_shapes(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  report.section("Shapes");
  std::vector<std::string> columns, rows, bytes;
  for (const Range& r : shard_ranges(kInter, tp_size)) {
    columns.push_back(Shape{r.size(), kHidden}.to_string());
    rows.push_back(Shape{kHidden, r.size()}.to_string());
    bytes.push_back(std::to_string(r.size() * kHidden * 4));
  }
  const std::string whole = Shape{kInter, kHidden}.to_string(),
                    whole_down = Shape{kHidden, kInter}.to_string();
  report.table({"shapes",
                {"weight", "whole", "split", "gate_i, up_i, down_i on each rank", "bytes in f32"},
                {{"gate", whole, "output features", cell_of(columns), cell_of(bytes)},
                 {"up", whole, "output features", cell_of(columns), cell_of(bytes)},
                 {"down", whole_down, "input features", cell_of(rows), cell_of(bytes)}}});
  if (kInter % tp_size != 0)
    report.line(fmt::format("uneven: the largest shard is {:.1f} % above the mean",
                            imbalance_percent(kInter, tp_size)));
}

// By hand, in the articles' layout; the biases of gate and up are left out there.
void compare_by_hand(Report& report, const Options& options, const Inputs& in) {
  Inputs plain = make_inputs(options);
  plain.gate_bias = Matrix(1, kInter);
  plain.up_bias = Matrix(1, kInter);
  const Matrix reference = run_one_device(plain, true).y;
  const HandMlp mlp{transpose(to_matrix(in.gate)), transpose(to_matrix(in.up)),
                    transpose(to_matrix(in.down))};
  const HandResult hand = mlp_by_hand(in.x, mlp, static_cast<int>(options.tp));
  report.check(compare("by hand, without gate and up biases", add_row(hand.y, in.down_bias).view(),
                       reference.view(), Tolerance::of_deviation(2e-5, reference.view())));
}

void compare_form(Report& report,
                  const Options& options,
                  const std::string& name,
                  int tp_size,
                  const std::vector<RankOutput>& ranks,
                  const OneDevice& reference,
                  const Inputs& in) {
  const double magnitude = max_dot_magnitude(reference.h.view(), in.down);
  const Tolerance tolerance =
      Accuracy::of(options, in.down.dtype(), 2)
          .row_parallel(tp_size, Tolerance::reordered_sum(kInter, magnitude), reference.y.view());
  report.check(compare_on_every_rank(fmt::format("{}, tp {}", name, tp_size), ranks, "y",
                                     reference.y.view(), tolerance));
}

void lesson(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  check_divides("intermediate size", kInter, options.tp, options.uneven);
  show_why_column_then_row(report);
  show_fused_gate_up(report);
  show_shapes(options, report);

  const Inputs in = make_inputs(options);
  const OneDevice gated = run_one_device(in, true), ungated = run_one_device(in, false);
  const auto ranks = run_form(options, tp_size, in, paired);
  const auto naive_ranks = run_form(options, tp_size, in, naive);

  report.section("What each rank holds for the first token (six features)");
  const auto head = [](const Matrix& m) { return format_row(m.rows_in({0, 1}).cols_in({0, 6})); };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    report.line(fmt::format("rank {} partial  {}", r, head(to_matrix(ranks[r].tensor("partial")))));
  report.line("their sum       " + head(to_matrix(ranks[0].tensor("sum"))));
  report.line("bias            " + format_row(in.down_bias.cols_in({0, 6})));
  report.line("sum + bias      " + head(to_matrix(ranks[0].tensor("y"))));
  report.line("one device      " + head(gated.y));

  report.section("Communication of rank 0 (paired)");
  report.table(ranks[0].ledger.to_table());
  report.section("Communication of rank 0 (naive)");
  report.table(naive_ranks[0].ledger.to_table());
  show_price_list(report);

  report.section("Compared with one device");
  report.line("for tp 1, 2, 3, 4, 8 and the asked one");
  for (const int size : std::set<int>{1, 2, 3, 4, 8, tp_size}) {
    compare_form(report, options, "gated, paired", size, run_form(options, size, in, paired), gated,
                 in);
    compare_form(report, options, "gated, naive", size, run_form(options, size, in, naive), gated,
                 in);
    compare_form(report, options, "without a gate", size, run_form(options, size, in, without_gate),
                 ungated, in);
  }
  compare_by_hand(report, options, in);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    report.expect(fmt::format("calls of rank {} in the paired form", r),
                  ranks[r].ledger.total().calls, 1);
    report.expect(fmt::format("all_reduce elements of rank {}", r),
                  ranks[r].ledger.total(Op::all_reduce).elements, kTokens * kHidden);
  }
  report.time("waiting and communicating, paired", ranks[0].ledger.total().microseconds);
  report.time("waiting and communicating, naive", naive_ranks[0].ledger.total().microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  ChapterSpec spec;
  spec.number = "02";
  spec.name = "mlp_one_all_reduce";
  spec.lesson =
      "Column-parallel into the intermediate features and row-parallel out of them takes one "
      "all-reduce.";
  spec.example = "ch02_mlp_one_all_reduce --tp 4";
  spec.faults = {
      {"bias_added_tp_times", "every rank adds the bias of down before the sum"},
      {"concat_instead_of_sum", "partial sums are put side by side instead of being added"},
      {"skip_all_reduce", "partial sums are taken for the result"},
      {"shards_swapped", "the shards of down are dealt in reverse order"},
      {"activation_before_sum", "an activation is applied to the partial sums"}};
  for (const Fault& fault : mismatched_collective_faults()) spec.faults.push_back(fault);
  return chapter_main(argc, argv, spec, lesson);
}

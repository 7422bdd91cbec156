// Chapter 01: the two ways to split a matrix.
//
// You learn:  column-parallel ranks hold different parts of the output, so the parts are put side
//             by side; row-parallel ranks hold parts of a sum, so they must be added.
// New here:   run_ranks, Communicator, ColumnParallelLinear, RowParallelLinear, and the comparison
//             with one device.
// Run:        ch01_column_row_split            last line: PASS
//
// Shapes, with the sizes of the second half, which are pairwise different so that a swap shows:
//   x [tokens 5, in 12]   w [inner 48, in 12]   v [out 7, inner 48]   bias [out 7]
//   y = x w^T [5, 48] is split by columns, z = y v^T + bias [5, 7] is the sum over ranks.
#include <set>
#include <string>

#include <fmt/format.h>

#include "article_example.h"
#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/core/matrix.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/faults.h"
#include "common/parallel/gather_columns.h"
#include "common/parallel/linear.h"
#include "common/parallel/run_ranks.h"

using namespace tp;

namespace {

constexpr std::int64_t kTokens = 5, kIn = 12, kInner = 48, kUnevenInner = 50, kOut = 7;

// Weights as stored, [out, in], and the input.
struct Inputs {
  Matrix x, bias;
  Tensor w, v;
};

// Random values in [-1, 1), or small integers, whose sums are exact in any order.
Inputs make_inputs(const Options& options, std::int64_t inner, bool integers) {
  const auto make = integers ? random_integers : random_matrix;
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const DType dtype = dtype_from_name(options.dtype.empty() ? "f32" : options.dtype);
  return {make(kTokens, kIn, seed), make(1, kOut, seed + 1),
          to_tensor(make(inner, kIn, seed + 2), dtype),
          to_tensor(make(kOut, inner, seed + 3), dtype)};
}

// One device, which knows nothing of ranks.
// [region one_device]
struct OneDevice {
  Matrix y, z;
};
OneDevice run_one_device(const Inputs& in) {
  const std::unique_ptr<Device> device = make_cpu_device();
  Matrix y(kTokens, in.w.shape()[0]), z(kTokens, kOut);
  device->matmul(in.x.view(), in.w, y.view(), SumBlocks::whole(kIn));
  device->matmul(y.view(), in.v, z.view(), SumBlocks::whole(y.cols));
  device->add_bias(z.view(), in.bias.view());
  return {y, z};
}
// [end one_device]

// This rank's shards of the two layers; with a fault, what it takes for them.
struct Layers {
  ColumnParallelLinear first;
  RowParallelLinear second;
};
Layers load_layers(const RankContext& ctx, const Inputs& in, const std::string& fault) {
  const Matrix bias = scale(in.bias, bias_factor(ctx, fault));
  const RankContext owner = row_shard_owner(ctx, fault, in.v.shape()[1]);
  return {ColumnParallelLinear::shard(ctx, {in.w}),
          RowParallelLinear::shard(owner, {in.v, bias.view()})};
}

Tensor activations(const RankContext& ctx, std::int64_t columns) {
  return ctx.device.allocate({kTokens, columns}, DType::f32, "activations");
}

// Puts the parts of y together, which the lesson does not need, only to look at y.
void show_y(const RankContext& ctx, RankOutput& out, ConstTensorView y_local, std::int64_t inner) {
  const std::vector<Range> parts = shard_ranges(inner, ctx.tp_size);
  Tensor y = activations(ctx, inner);
  Tensor staging =
      ctx.device.allocate(gather_staging_shape(kTokens, parts), DType::f32, "activations");
  all_gather_columns(ctx, y_local, parts, staging, y, "y, only to show it");
  out.keep("y", y);
}

// The lesson: the same two layers on every rank.
// [region ranks]
void on_each_rank(const RankContext& ctx, RankOutput& out, const Inputs& in, const Layers& layers) {
  const Tensor x = ctx.device.write(in.x.view(), "activations");  // the same on every rank
  Tensor y_local = activations(ctx, layers.first.out_local());
  Tensor z_buffer = activations(ctx, kOut);  // first this rank's addend, then, in place, the sum

  layers.first.forward(ctx, x, y_local);  // nothing is sent
  const PartialSum partial =
      layers.second.partial(ctx, y_local, z_buffer);  // takes y_local as it is
  out.keep("partial", partial.addend);

  const TensorView z = sum_over_ranks(ctx, partial, "z");
  out.keep("sum", z);
  ctx.device.add_bias(z, layers.second.bias);  // once, after the sum
  out.keep("z", z);
  // The last three steps in one: layers.second.forward(ctx, y_local, z_buffer, "z").

  show_y(ctx, out, y_local, in.w.shape()[0]);
}
// [end ranks]

std::vector<RankOutput> run_split(const Options& options, const Inputs& in, int tp_size) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    on_each_rank(ctx, out, in, load_layers(ctx, in, options.fault));
  });
}

void show_shapes(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  report.section("Shapes of the second half");
  Table table{"shapes", {"tensor", "whole", "split", "local on each rank"}, {}};
  std::vector<std::string> columns, rows;
  for (const Range& r : shard_ranges(kInner, tp_size)) {
    columns.push_back(Shape{r.size(), kIn}.to_string());
    rows.push_back(Shape{kOut, r.size()}.to_string());
  }
  const auto shape = [](std::int64_t a, std::int64_t b) { return Shape{a, b}.to_string(); };
  table.rows = {
      {"x", shape(kTokens, kIn), "no, the same on each rank", shape(kTokens, kIn)},
      {"w (column-parallel)", shape(kInner, kIn), "output features", cell_of(columns)},
      {"v (row-parallel)", shape(kOut, kInner), "input features", cell_of(rows)},
      {"bias", Shape{kOut}.to_string(), "no, added once after the sum", Shape{kOut}.to_string()}};
  report.table(table);
  if (kInner % tp_size != 0)
    report.line(fmt::format("uneven: the largest shard is {:.1f} % above the mean",
                            imbalance_percent(kInner, tp_size)));
}

// Compares what every rank holds with one device, and one device with the calculation by hand.
void compare_all(Report& report,
                 const Options& options,
                 const Inputs& in,
                 int tp_size,
                 bool integers,
                 const std::vector<RankOutput>& ranks) {
  const OneDevice one = run_one_device(in);
  const std::string what =
      fmt::format("{}, inner {}, tp {}: ", integers ? "integers" : "random", one.y.cols, tp_size);
  // Sums of small integers are exact in any order; random ones differ in the last bits.
  const Tolerance any_order =
      integers ? Tolerance::exact()
               : Tolerance::reordered_sum(one.y.cols, max_dot_magnitude(one.y.view(), in.v));
  Accuracy accuracy = Accuracy::of(options, in.w.dtype(), 2);
  if (integers) accuracy = {};  // on a GPU, too, and they fit into 16 bits
  report.check(compare_on_every_rank(what + "y", ranks, "y", one.y.view(),
                                     accuracy.same_steps(one.y.view())));
  report.check(compare_on_every_rank(what + "z", ranks, "z", one.z.view(),
                                     accuracy.row_parallel(tp_size, any_order, one.z.view())));

  // By hand both layers add in another order, so the magnitudes go through both.
  const Matrix w = transpose(to_matrix(in.w)), v = transpose(to_matrix(in.v));
  const Matrix magnitude = multiply(absolute(in.x), absolute(w));
  const Tolerance both_layers =
      integers
          ? Tolerance::exact()
          : Tolerance::reordered_sum(kIn + one.y.cols, max_dot_magnitude(magnitude.view(), in.v));
  const ByHand hand = split_by_hand(in.x, w, v, tp_size);
  report.check(
      compare(what + "z by hand", add_row(hand.z, in.bias).view(), one.z.view(), both_layers));
}

void lesson(const Options& options, Report& report) {
  check_divides("inner size", kInner, options.tp, options.uneven);
  show_article_example(options, report);
  show_shapes(options, report);

  const Inputs in = make_inputs(options, kInner, false);
  const auto ranks = run_split(options, in, static_cast<int>(options.tp));
  report.section("What each rank holds for the first token");
  const auto row = [](ConstTensorView m) { return format_row(to_matrix(m.rows_in({0, 1}))); };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    report.line(fmt::format("rank {} partial  {}", r, row(ranks[r].tensor("partial"))));
  report.line("their sum       " + row(ranks[0].tensor("sum")));
  report.line("bias            " + format_row(in.bias));
  report.line("sum + bias      " + row(ranks[0].tensor("z")));
  report.line("one device      " + row(run_one_device(in).z.view()));

  report.section("Communication of rank 0");
  report.table(ranks[0].ledger.to_table());

  report.section("Compared with one device");
  report.line("for tp 1, 2, 3, 4 and the asked one; 50 features on 3 ranks split unevenly");
  for (const bool integers : {true, false}) {
    std::set<int> sizes{1, 2, 3, 4, static_cast<int>(options.tp)};
    for (const int tp_size : sizes) {
      const Inputs inputs = make_inputs(options, kInner, integers);
      compare_all(report, options, inputs, tp_size, integers, run_split(options, inputs, tp_size));
    }
    const Inputs uneven = make_inputs(options, kUnevenInner, integers);
    compare_all(report, options, uneven, 3, integers, run_split(options, uneven, 3));
  }
  report.time("waiting and communicating, rank 0", ranks[0].ledger.total().microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  ChapterSpec spec;
  spec.number = "01";
  spec.name = "column_row_split";
  spec.lesson =
      "A weight split by output features gives parts of the output; split by input features, parts "
      "of a sum.";
  spec.example = "ch01_column_row_split --tp 4";
  spec.faults = {
      {"bias_added_tp_times", "every rank adds the row-parallel bias before the sum"},
      {"concat_instead_of_sum", "partial sums are put side by side instead of being added"},
      {"skip_all_reduce", "partial sums are taken for the result"},
      {"shards_swapped", "the row-parallel shards are dealt in reverse order"}};
  for (const Fault& fault : mismatched_collective_faults()) spec.faults.push_back(fault);
  return chapter_main(argc, argv, spec, lesson);
}

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

// The lesson: the same two layers on tp_size ranks.
// [region ranks]
std::vector<RankOutput> run_split(const Options& options, const Inputs& in, int tp_size) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  const std::vector<Range> parts = shard_ranges(in.w.shape()[0], tp_size);
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    const Matrix bias = scale(in.bias, bias_factor(ctx, options.fault));
    const auto first = ColumnParallelLinear::shard(ctx, {in.w});
    const auto second = RowParallelLinear::shard(
        row_shard_owner(ctx, options.fault, in.v.shape()[1]), {in.v, bias.view()});
    const auto allocate = [&](const Shape& shape) {
      return ctx.device.allocate(shape, DType::f32, "activations");
    };
    Tensor y_local = allocate({kTokens, first.out_local()}),
           y = allocate({kTokens, in.w.shape()[0]});
    Tensor z = allocate({kTokens, kOut}), staging = allocate(gather_staging_shape(kTokens, parts));

    first.forward(ctx, in.x.view(), y_local);  // nothing is sent
    all_gather_columns(ctx, y_local, parts, staging, y, "y, only to show it");
    out.keep("y", y);

    const PartialSum partial = second.partial(ctx, y_local, z);  // takes y_local as it is
    out.keep("partial", partial.addend);
    const TensorView sum = sum_over_ranks(ctx, partial, "z");
    ctx.device.add_bias(sum, second.bias);  // once, after the sum
    out.keep("z", sum);
  });
}
// [end ranks]

void show_shapes(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  report.section("Shapes of the second half");
  Table table{"shapes", {"tensor", "whole", "split", "local on each rank"}, {}};
  std::string columns, rows;
  for (const Range& r : shard_ranges(kInner, tp_size)) {
    columns += fmt::format("[{}, {}] ", r.size(), kIn);
    rows += fmt::format("[{}, {}] ", kOut, r.size());
  }
  const auto shape = [](std::int64_t a, std::int64_t b) { return Shape{a, b}.to_string(); };
  table.rows = {
      {"x", shape(kTokens, kIn), "no, the same on each rank", shape(kTokens, kIn)},
      {"w (column-parallel)", shape(kInner, kIn), "output features", columns},
      {"v (row-parallel)", shape(kOut, kInner), "input features", rows},
      {"bias", Shape{kOut}.to_string(), "no, added once after the sum", Shape{kOut}.to_string()}};
  report.table(table);
  if (kInner % tp_size != 0)
    report.line(fmt::format("uneven: the largest shard is {:.1f} % above the mean",
                            imbalance_percent(kInner, tp_size)));
}

// Compares what every rank holds with one device, and one device with the calculation by hand.
void compare_all(Report& report,
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
  report.check(compare_on_every_rank(what + "y", ranks, "y", one.y.view(), Tolerance::exact()));
  report.check(compare_on_every_rank(what + "z", ranks, "z", one.z.view(),
                                     row_parallel_tolerance(tp_size, any_order)));

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
  if (kInner % options.tp != 0 && !options.uneven)
    throw input_error(fmt::format(
        "--tp {}: the inner size {} is not a multiple of it; use 1, 2, 3, 4, 6, 8, or add --uneven",
        options.tp, kInner));
  if (options.tp > kInner)
    throw input_error(
        fmt::format("--tp {}: more ranks than the {} inner features", options.tp, kInner));

  show_article_example(options, report);
  show_shapes(options, report);

  const Inputs in = make_inputs(options, kInner, false);
  const auto ranks = run_split(options, in, static_cast<int>(options.tp));
  report.section("What each rank holds for the first token");
  for (std::size_t r = 0; r < ranks.size(); ++r)
    report.line(fmt::format("rank {} partial  {}", r,
                            format_row(to_matrix(ranks[r].tensor("partial")).rows_in({0, 1}))));
  report.line(fmt::format("sum + bias      {}",
                          format_row(to_matrix(ranks[0].tensor("z")).rows_in({0, 1}))));
  report.line(fmt::format("one device      {}", format_row(run_one_device(in).z.rows_in({0, 1}))));

  report.section("Communication of rank 0");
  report.table(ranks[0].ledger.to_table());

  report.section("Compared with one device");
  for (const bool integers : {true, false}) {
    std::set<int> sizes{1, 2, 3, 4, static_cast<int>(options.tp)};
    for (const int tp_size : sizes) {
      const Inputs inputs = make_inputs(options, kInner, integers);
      compare_all(report, inputs, tp_size, integers, run_split(options, inputs, tp_size));
    }
    const Inputs uneven = make_inputs(options, kUnevenInner, integers);
    compare_all(report, uneven, 3, integers, run_split(options, uneven, 3));
  }
  report.time("communication of rank 0", ranks[0].ledger.total().microseconds);
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

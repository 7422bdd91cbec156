#include "article_example.h"

#include <fmt/format.h>

#include "by_hand.h"
#include "common/parallel/faults.h"
#include "common/parallel/gather_columns.h"
#include "common/parallel/linear.h"
#include "common/parallel/run_ranks.h"

namespace tp {

namespace {

const Matrix kX(1, 2, {1, 2});
const Matrix kW(2,
                4,
                {1, 2, 3, 4,  //
                 5, 6, 7, 8});
const Matrix kV(4, 1, {1, 2, 3, 4});

// "[1, 2 ; 5, 6]": the rows one behind the other.
std::string format_rows(const Matrix& m) {
  std::string text;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    const std::string values = format_row(m.rows_in({row, row + 1}));
    text += (row == 0 ? "[" : " ; ") + values.substr(1, values.size() - 2);
  }
  return text + "]";
}

// The figures of the article, by hand.
void show_by_hand(Report& report) {
  const ByHand two = split_by_hand(kX, kW, kV, 2);
  report.section("The article's example by hand");
  report.line(
      fmt::format("X = {}   W = {}   V = {}", format_rows(kX), format_rows(kW), format_rows(kV)));
  report.line("one device: X W = " + format_row(multiply(kX, kW)) +
              ", X W V = " + format_row(multiply(multiply(kX, kW), kV)));
  report.expect("columns of W on two ranks, X W", format_row(two.y, {2}), "[11, 14 | 17, 20]");
  report.expect("rows of V on rank 0, partial", format_row(two.partials[0]), "[39]");
  report.expect("rows of V on rank 1, partial", format_row(two.partials[1]), "[131]");
  report.expect("39 + 131, the sum", format_row(two.z), "[170]");

  const Matrix ten(1, 1, {10});
  report.expect("a bias of 10, added once", format_row(add(two.z, ten)), "[180]");
  report.expect("the bias added by both ranks before the sum (wrong)",
                format_row(add(add(two.partials[0], ten), add(two.partials[1], ten))), "[190]");

  const Matrix swapped = add(multiply(two.y_parts[0], kV.rows_in({2, 4})),
                             multiply(two.y_parts[1], kV.rows_in({0, 2})));
  report.expect("halves of V swapped, the sum (wrong)", format_row(swapped), "[146]");
  report.expect("four ranks, partials side by side",
                format_row(concat_columns(split_by_hand(kX, kW, kV, 4).partials)),
                "[11, 28, 51, 80]");
  report.expect("four ranks, the sum", format_row(split_by_hand(kX, kW, kV, 4).z), "[170]");
}

// In memory a weight is [out, in]: what the article calls a column is a row there.
void show_storage(Report& report) {
  report.section("Article columns are memory rows");
  report.line("The article writes W as [in, out]; checkpoints store it as [out, in]:");
  const Matrix stored = transpose(kW);
  for (std::int64_t row = 0; row < stored.rows; ++row)
    report.line(fmt::format("  stored row {} = {}{}", row,
                            format_row(stored.rows_in({row, row + 1})),
                            row == 1 ? "   <- rank 0 above, rank 1 below" : ""));
  const Matrix by_columns = multiply(kX, kW.cols_in({2, 4}));
  const Matrix by_rows = multiply(kX, transpose(stored.rows_in({2, 4})));
  report.expect("rank 1, from the article's columns 2 and 3", format_row(by_columns), "[17, 20]");
  report.expect("rank 1, from the stored rows 2 and 3", format_row(by_rows), "[17, 20]");
}

// The same with the library: what two ranks hold before and after each operation.
void show_who_holds_what(const Options& options, Report& report) {
  Launch launch = Launch::from(options);
  launch.tp_size = 2;
  const Matrix w_stored = transpose(kW), v_stored = transpose(kV);
  const auto ranks =
      run_ranks(with_fault(launch, options.fault), [&](RankContext& ctx, RankOutput& out) {
        const auto first = ColumnParallelLinear::shard(ctx, {w_stored.view()});
        const auto second = RowParallelLinear::shard(row_shard_owner(ctx, options.fault, kV.rows),
                                                     {v_stored.view()});
        Tensor y_local = ctx.device.allocate({1, 2}, DType::f32, "activations");
        Tensor y = ctx.device.allocate({1, 4}, DType::f32, "activations");
        Tensor z = ctx.device.allocate({1, 1}, DType::f32, "activations");
        Tensor side_by_side = ctx.device.allocate({1, 2}, DType::f32, "activations");

        first.forward(ctx, ctx.device.write(kX.view(), "activations"), y_local);
        out.keep("y_local", y_local);
        ctx.comm.all_gather(y_local, y, "column shards");
        out.keep("y", y);

        const PartialSum partial = second.partial(ctx, y_local, z);
        out.keep("partial", partial.addend);
        ctx.comm.all_gather(partial.addend, side_by_side, "partials, a mistake");
        out.keep("side by side", side_by_side);
        out.keep("z", sum_over_ranks(ctx, partial, "partials"));
      });

  const auto row = [&](const char* what, const char* name) {
    return std::vector<std::string>{what, format_row(to_matrix(ranks[0].tensor(name))),
                                    format_row(to_matrix(ranks[1].tensor(name)))};
  };
  report.section("Who holds what after all_gather and all_reduce");
  report.table(
      {"who_holds_what",
       {"", "rank 0", "rank 1"},
       {row("parts of X W", "y_local"), row("all_gather of the parts", "y"),
        row("partial sums of X W V", "partial"), row("all_reduce of the partial sums", "z"),
        row("all_gather of the partial sums, a mistake: two values where one belongs",
            "side by side")}});
  for (const RankOutput& rank : ranks) {
    const std::string who = fmt::format("rank {}", &rank - ranks.data());
    report.expect(who + " after the all_gather", format_row(to_matrix(rank.tensor("y"))),
                  "[11, 14, 17, 20]");
    report.expect(who + " after the all_reduce", format_row(to_matrix(rank.tensor("z"))), "[170]");
  }
}

// A row-parallel layer with a bias, on 1, 2 and 4 ranks.
void show_bias(const Options& options, Report& report) {
  const Matrix x(1, 4, {1, 2, 3, 4});
  const Matrix w_stored = transpose(Matrix(4, 2,
                                           {1, 0,  //
                                            0, 1,  //
                                            1, 1,  //
                                            2, -1}));
  const Matrix b(1, 2, {10, -20});
  report.section("A row-parallel bias is added once");
  report.line("x = [1, 2, 3, 4], x W = [12, 1], b = [10, -20]:");
  for (const int tp_size : {1, 2, 4}) {
    Launch launch = Launch::from(options);
    launch.tp_size = tp_size;
    const auto ranks =
        run_ranks(with_fault(launch, options.fault), [&](RankContext& ctx, RankOutput& out) {
          const Matrix bias = scale(b, bias_factor(ctx, options.fault));
          const auto layer = RowParallelLinear::shard(ctx, {w_stored.view(), bias.view()});
          const Tensor x_local = ctx.device.write(x.cols_in(layer.in_global).view(), "activations");
          Tensor y = ctx.device.allocate({1, 2}, DType::f32, "activations");
          layer.forward(ctx, x_local, y, "biased layer");
          out.keep("y", y);
        });
    for (std::size_t r = 0; r < ranks.size(); ++r)
      report.expect(fmt::format("y on rank {} of {}", r, tp_size),
                    format_row(to_matrix(ranks[r].tensor("y"))), "[22, -19]");
  }
}

}  // namespace

void show_article_example(const Options& options, Report& report) {
  show_by_hand(report);
  show_storage(report);
  show_who_holds_what(options, report);
  show_bias(options, report);
}

}  // namespace tp

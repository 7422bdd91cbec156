// Chapter 04: grouped-query attention (GQA), and KV heads that are replicated.
//
// You learn:  KV heads follow the query heads that read them; with more ranks than KV heads they
//             are replicated, and a rank's KV cache stops shrinking; what uneven splits waste.
// New here:   shards of heads that overlap, which tp sizes are usable, and the bytes of a KV cache.
// Run:        ch04_gqa_kv_replication            last line: PASS
//
// Shapes, with the default sizes of the second half:
//   x [tokens 5, hidden 11]   q_proj [heads 8 * head_dim 32, hidden]   k_proj, v_proj [2 * 32, hidden]
//   KV cache of a rank, one block for the whole sequence: [1, its KV heads, tokens, head_dim]
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/core/matrix.h"
#include "common/device/batch.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/faults.h"
#include "common/parallel/gather_columns.h"
#include "common/parallel/linear.h"
#include "common/parallel/run_ranks.h"
#include "kv_layout.h"
#include "show_ranks.h"
#include "small_examples.h"

using namespace tp;

namespace {

constexpr std::int64_t kSmallHeadDim = 3;

// Weights as stored, [out, in], and the input. Keys and values are kept in f32.
struct Inputs {
  KvShape shape;
  Matrix x;
  Tensor q, k, v;
};

Inputs make_inputs(const Options& options, KvShape shape) {
  const DType dtype = dtype_from_name(options.dtype.empty() ? "f32" : options.dtype);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const auto weight = [&](std::int64_t heads, std::uint64_t number) {
    return to_tensor(random_matrix(heads * shape.head_dim, kHidden, seed + number), dtype);
  };
  shape.bits = 32;
  return {shape, random_matrix(kTokens, kHidden, seed), weight(shape.heads, 1),
          weight(shape.kv_heads, 2), weight(shape.kv_heads, 3)};
}

// The whole sequence in one block, which is its KV cache.
struct OneSequence {
  explicit OneSequence(std::int64_t tokens) : batch(tokens) { batch.add(table, 0, tokens); }
  std::vector<std::int32_t> table{0};
  Batch batch;
};

// One device, which knows nothing of ranks.
// [region one_device]
Matrix run_one_device(const Inputs& in) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const KvShape& s = in.shape;
  const std::int64_t tokens = in.x.rows, hidden = in.x.cols;
  const Matrix zeros(tokens, s.kv_heads * s.head_dim);
  Matrix q(tokens, s.heads * s.head_dim), k = zeros, v = zeros, y = q;
  device->matmul(in.x.view(), in.q, q.view(), SumBlocks::whole(hidden));
  device->matmul(in.x.view(), in.k, k.view(), SumBlocks::whole(hidden));
  device->matmul(in.x.view(), in.v, v.view(), SumBlocks::whole(hidden));

  const Shape cache{1, s.kv_heads, tokens, s.head_dim};
  Tensor keys = device->allocate(cache, DType::f32, "kv");
  Tensor values = device->allocate(cache, DType::f32, "kv");
  const KvLayer kv{keys.view(), values.view()};
  const OneSequence sequence(tokens);
  const BatchView batch = sequence.batch.view();
  device->store_kv(k.view(), v.view(), batch.slot_mapping, kv);
  const HeadShard all{{0, s.heads}, {0, s.kv_heads}, s.heads / s.kv_heads};
  device->attention(q.view(), kv, all, batch, y.view());
  return y;
}
// [end one_device]

Tensor activations(const RankContext& ctx, std::int64_t tokens, std::int64_t columns) {
  return ctx.device.allocate({tokens, columns}, DType::f32, "activations");
}

// The KV heads whose rows of k_proj and v_proj the rank loads: those that its query heads read. With
// the fault, replicas are dealt to the ranks in turn, like cards.
Range kv_heads_to_load(const RankContext& ctx, const KvShape& s, const std::string& fault) {
  const Range read = head_shard(s.heads, s.kv_heads, ctx.rank, ctx.tp_size).kv;
  const bool is_replica = ctx.tp_size > s.kv_heads && read.size() == 1;
  if (fault != "wrong_kv_map" || !is_replica) return read;
  const std::int64_t dealt = ctx.rank % s.kv_heads;
  return {dealt, dealt + 1};
}

// How many ranks keep each KV head: every rank brings a 1 for those that it has loaded.
void count_replicas(const RankContext& ctx, RankOutput& out, Range loaded, std::int64_t kv_heads) {
  Matrix ones(1, kv_heads);
  for (std::int64_t kv = loaded.begin; kv < loaded.end; ++kv) ones(0, kv) = 1;
  out.keep("kept", ones.view());
  Tensor replicas = ctx.device.write(ones.view(), "activations");
  ctx.comm.all_reduce(replicas, "replicas of each KV head");
  out.keep("replicas", replicas);
}

// Puts the heads of all ranks together on rank 0, which attention does not need.
void gather_heads(const RankContext& ctx,
                  RankOutput& out,
                  ConstTensorView y_local,
                  const KvShape& s) {
  std::vector<Range> columns;
  for (const Range& heads : shard_ranges(s.heads, ctx.tp_size))
    columns.push_back(heads.times(s.head_dim));
  Tensor y = activations(ctx, y_local.rows(), s.heads * s.head_dim);
  Tensor staging =
      ctx.device.allocate(gather_staging_shape(y_local.rows(), columns), DType::f32, "activations");
  gather_columns(ctx, y_local, columns, 0, staging, y, "heads, only to compare");
  if (ctx.rank == 0) out.keep("y", y);
}

// The lesson: attention on every rank, with the KV heads that its query heads read.
// [region ranks]
void on_each_rank(const RankContext& ctx, RankOutput& out, const Inputs& in, Range kv_to_load) {
  const KvShape& s = in.shape;
  const HeadShard heads = head_shard(s.heads, s.kv_heads, ctx.rank, ctx.tp_size);
  const auto load = [&](ConstTensorView weight, Range of_heads) {
    const Range rows = of_heads.times(s.head_dim);
    return ColumnParallelLinear::shard_rows(ctx, {weight}, rows);
  };
  const ColumnParallelLinear q_proj = load(in.q, heads.query);
  const ColumnParallelLinear k_proj = load(in.k, kv_to_load);  // heads.kv
  const ColumnParallelLinear v_proj = load(in.v, kv_to_load);
  count_replicas(ctx, out, kv_to_load, s.kv_heads);

  const std::int64_t tokens = in.x.rows;
  const Tensor x = ctx.device.write(in.x.view(), "activations");  // the same on every rank
  Tensor q = activations(ctx, tokens, q_proj.out_local());
  Tensor k = activations(ctx, tokens, k_proj.out_local());
  Tensor v = activations(ctx, tokens, v_proj.out_local());
  Tensor y_local = activations(ctx, tokens, q_proj.out_local());
  q_proj.forward(ctx, x, q);
  k_proj.forward(ctx, x, k);
  v_proj.forward(ctx, x, v);

  const Shape cache{1, heads.kv.size(), tokens, s.head_dim};  // this rank's KV heads, no others
  Tensor keys = ctx.device.allocate(cache, DType::f32, "kv");
  Tensor values = ctx.device.allocate(cache, DType::f32, "kv");
  const KvLayer kv{keys.view(), values.view()};
  const OneSequence sequence(tokens);
  const BatchView batch = sequence.batch.view();
  ctx.device.store_kv(k, v, batch.slot_mapping, kv);
  ctx.device.attention(q, kv, heads, batch, y_local);  // nothing is sent
  gather_heads(ctx, out, y_local, s);
}
// [end ranks]

std::vector<RankOutput> run_split(const Options& options, const Inputs& in, int tp_size) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    on_each_rank(ctx, out, in, kv_heads_to_load(ctx, in.shape, options.fault));
  });
}

// Four query heads and two KV heads of one element, and one token: softmax of one score is 1, so
// every head's output is the value of its KV head.
void show_one_number_per_head(const Options& options, Report& report) {
  Inputs in{{.heads = 4, .kv_heads = 2, .head_dim = 1, .bits = 32}, Matrix(1, 1, {1}), {}, {}, {}};
  in.q = to_tensor(Matrix(4, 1, {1, 2, 3, 4}), DType::f32);
  in.k = to_tensor(Matrix(2, 1, {5, 6}), DType::f32);
  const Matrix values(2, 1, {10, 20});
  in.v = to_tensor(values, DType::f32);
  report.section("One number per head: 4 query heads, 2 KV heads, V = [10, 20]");
  report.line("one device: " + format_row(run_one_device(in)));
  for (const int tp_size : {1, 2, 4}) {
    const auto ranks = run_split(options, in, tp_size);
    report.expect(fmt::format("head outputs at tp {}", tp_size),
                  format_row(to_matrix(ranks[0].tensor("y"))), "[10, 10, 20, 20]");
  }
  Matrix dealt(1, 4);
  for (std::int64_t rank = 0; rank < 4; ++rank) dealt(0, rank) = values(rank % 2, 0);
  report.expect("replicas dealt in turn, rank r keeps KV head r % 2 (wrong)", format_row(dealt),
                "[10, 20, 10, 20]");
}

void compare_split(Report& report, const Options& options, const Inputs& in, int tp_size) {
  const KvShape& s = in.shape;
  const auto ranks = run_split(options, in, tp_size);
  const Matrix reference = run_one_device(in);
  report.check(compare(fmt::format("heads {}, KV heads {}, tp {}", s.heads, s.kv_heads, tp_size),
                       ranks[0].tensor("y"), reference.view(),
                       Accuracy::of(options, in.q.dtype(), 3).same_steps(reference.view())));
}

// Small heads at every tp size: one KV head per query head (MHA), grouped (GQA), one for all (MQA).
void compare_sizes(Report& report, const Options& options) {
  const auto inputs = [&](std::int64_t heads, std::int64_t kv_heads) {
    return make_inputs(options, {.heads = heads, .kv_heads = kv_heads, .head_dim = kSmallHeadDim});
  };
  for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {8, 2}, {6, 1}, {40, 10}, {28, 4}}) {
    const Inputs in = inputs(heads, kv_heads);
    for (const int tp_size : usable_tp_sizes({heads, kv_heads}))
      compare_split(report, options, in, tp_size);
  }
  report.line("split unevenly:");
  const Inputs in = inputs(8, 2);
  for (const int tp_size : {3, 5, 6, 7}) compare_split(report, options, in, tp_size);
  for (const int tp_size : {3, 7, 14}) compare_split(report, options, inputs(28, 4), tp_size);
}

void compare_by_hand(Report& report, const Inputs& in, int tp_size) {
  const HandAttention weights{transpose(to_matrix(in.q)), transpose(to_matrix(in.k)),
                              transpose(to_matrix(in.v)), in.shape.heads, in.shape.kv_heads};
  const Matrix reference = run_one_device(in);
  report.check(compare("the same by hand", gqa_by_hand(in.x, weights, tp_size).view(),
                       reference.view(), Tolerance::of_deviation(2e-5, reference.view())));
}

void lesson(const Options& options, const KvShape& shape, Report& report) {
  check_shape(shape, options);
  show_article_example(report);
  show_fewer_kv_heads_than_ranks(report);
  show_one_number_per_head(options, report);
  show_usable_sizes(report);
  show_uneven(report);
  show_70b(report);

  const auto tp_size = static_cast<int>(options.tp);
  show_shapes(options, shape, report);
  const Inputs in = make_inputs(options, shape);
  const auto ranks = run_split(options, in, tp_size);
  show_ranks(in.shape, ranks, report);
  report.section("Communication of rank 0");
  report.table(ranks[0].ledger.to_table());

  report.section("Compared with one device");
  check_ranks(in.shape, ranks, report);
  compare_split(report, options, in, tp_size);
  compare_by_hand(report, in, tp_size);
  report.line(fmt::format("other shapes, head_dim {}, at every usable tp:", kSmallHeadDim));
  compare_sizes(report, options);
  report.time("waiting and communicating, rank 0", ranks[0].ledger.total().microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  KvShape shape;
  ChapterSpec spec;
  spec.number = "04";
  spec.name = "gqa_kv_replication";
  spec.lesson =
      "A rank keeps the KV heads that its query heads read; with more ranks than KV heads it keeps "
      "copies.";
  spec.example =
      "ch04_gqa_kv_replication --heads 64 --kv-heads 8 --head-dim 128 --layers 80 --context 8192 "
      "--tp 16";
  spec.extra_options = shape_options(shape);
  spec.faults = {{"wrong_kv_map", "replicas of KV heads are dealt to the ranks in turn"}};
  for (const Fault& fault : mismatched_collective_faults()) spec.faults.push_back(fault);
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    lesson(options, shape, report);
  });
}

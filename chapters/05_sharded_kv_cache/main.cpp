// Chapter 05: one block table, and on every rank other heads behind it.
//
// You learn:  why a block id can mean the same tokens on every rank although each rank holds other
//             heads; why one rank must decide; how ranks notice that they do not do the same.
// New here:   KvCache (paged), BlockManager, BatchPlan, check_plans_equal, agree_on_pool_size.
// Run:        ch05_sharded_kv_cache            last line: PASS
//
// Shapes, with the sizes of the numeric run:
//   q [tokens, 16 heads * 6]   k, v [tokens, 8 KV heads * 6]   y [tokens, hidden 20]
//   pool on each rank: keys and values [9 blocks, KV heads of the rank, block size 4, head_dim 6]
#include <optional>
#include <string>

#include <fmt/format.h>

#include "article_example.h"
#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/core/error.h"
#include "common/engine/plan_check.h"
#include "common/engine/plan_faults.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/faults.h"
#include "common/parallel/gather_columns.h"
#include "layer.h"
#include "renamed_blocks.h"
#include "show_run.h"
#include "story.h"

using namespace tp;

namespace {

// The pool of this rank, as large as the smallest rank allows. The last rank has less room.
KvCache make_cache(const RankContext& ctx, const AttentionShard& layer, RankRecord& record) {
  KvLayout layout{1, layer.heads.kv.size(), kHeadDim, kBlockSize, 0};
  const std::int64_t room = ctx.rank == ctx.tp_size - 1 ? kPoolBlocks : kPoolBlocks + 3;
  record.budget = {room * layout.bytes_per_block(), layout.bytes_per_block()};
  record.pool = agree_on_pool_size(ctx, record.budget);
  layout.num_blocks = record.pool.num_blocks;
  return KvCache(ctx.device, layout);
}

// The row of `result` that belongs to each row of a plan.
void put_rows(const RankContext& ctx,
              const BatchPlan& plan,
              ConstTensorView rows,
              TensorView result) {
  std::vector<SequenceRows> parts;
  plan.sequence_rows(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StorySequence& s = story_sequences()[static_cast<std::size_t>(plan.sequences[i].id)];
    const std::int64_t first = s.rows.begin + parts[i].first_position - s.first_own;
    ctx.device.copy(rows.rows_in(parts[i].rows),
                    result.rows_in({first, first + parts[i].rows.size()}));
  }
}

// All heads side by side on rank 0, only to compare them.
void gather_heads(const RankContext& ctx,
                  const BatchPlan& plan,
                  ConstTensorView heads_local,
                  TensorView heads) {
  const std::vector<Range> parts = head_features(ctx.tp_size);
  Tensor staging = ctx.device.allocate(gather_staging_shape(heads_local.rows(), parts), DType::f32,
                                       "activations");
  Tensor whole =
      ctx.device.allocate({heads_local.rows(), kHeads * kHeadDim}, DType::f32, "activations");
  gather_columns(ctx, heads_local, parts, 0, staging, whole, "heads, to compare");
  if (ctx.rank == 0) put_rows(ctx, plan, whole, heads);
}

// The lesson. Rank 0 decides; every rank, rank 0 too, does what it can read from the message.
// [region ranks]
void on_each_rank(const RankContext& ctx,
                  RankOutput& out,
                  const Inputs& in,
                  bool check_hash,
                  RankRecord& record) {
  const AttentionShard layer = AttentionShard::load(ctx, in);
  KvCache cache = make_cache(ctx, layer, record);
  std::optional<ControlPlane> control;
  if (ctx.rank == 0) control.emplace(record.pool.num_blocks, kBlockSize);
  const auto results = [&](std::int64_t columns) {
    return ctx.device.allocate({story_rows(), columns}, DType::f32, "results");
  };
  Tensor heads = results(kHeads * kHeadDim), y = results(kHidden);

  std::vector<std::byte> message;
  BatchPlan plan;
  for (;;) {
    if (control) control->next().encode(message);
    ctx.group.broadcast(message, 0);
    plan.decode(message);
    if (check_hash) check_plans_equal(ctx, plan, letter_of);
    if (plan.stop()) break;
    const AttentionShard::Output step = layer.run(ctx, plan, cache.layer(0));
    record.plans.push_back(plan);
    put_rows(ctx, plan, step.y, y);
    gather_heads(ctx, plan, step.heads_local, heads);
  }
  if (control) record.references = control->references();
  if (control) out.keep("heads", heads);
  out.keep("y", y);
}
// [end ranks]

Run run_story(const Launch& launch, const Inputs& in, bool check_hash) {
  Run run;
  run.records.resize(static_cast<std::size_t>(launch.tp_size));
  run.outputs = run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    on_each_rank(ctx, out, in, check_hash, run.records[static_cast<std::size_t>(ctx.rank)]);
  });
  return run;
}

Launch launch_with_fault(const Options& options, int tp_size) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  return with_plan_fault(launch, options.fault, kBlockSize);
}

// One device runs each sequence by itself and at once.
LayerResult reference_of(const Inputs& in) {
  LayerResult all{Matrix(story_rows(), kHeads * kHeadDim), Matrix(story_rows(), kHidden)};
  for (const StorySequence& s : story_sequences()) {
    const LayerResult one = run_one_device(in, s.token_ids);
    const Range own{s.first_own, std::ssize(s.token_ids)};
    copy_host(one.heads.view().rows_in(own), all.heads.view().rows_in(s.rows));
    copy_host(one.y.view().rows_in(own), all.y.view().rows_in(s.rows));
  }
  return all;
}

void compare_heads(Report& report,
                   const Accuracy& accuracy,
                   const std::string& name,
                   const Run& run,
                   const LayerResult& reference) {
  const ConstTensorView wanted = reference.heads.view();
  report.check(compare(name, run.outputs[0].tensor("heads"), wanted, accuracy.same_steps(wanted)));
}

void compare_y(Report& report,
               const Accuracy& accuracy,
               const std::string& name,
               const Run& run,
               const LayerResult& reference,
               const Inputs& in) {
  const double magnitude = max_dot_magnitude(reference.heads.view(), in.o);
  report.check(compare_on_every_rank(
      name, run.outputs, "y", reference.y.view(),
      accuracy.row_parallel(static_cast<int>(run.outputs.size()),
                            Tolerance::reordered_sum(kHeads * kHeadDim, magnitude),
                            reference.y.view())));
}

// By hand: A, and then B in the blocks that A has left, in the same pools.
void compare_by_hand(Report& report, const Inputs& in, const LayerResult& reference, int tp_size) {
  const HandSizes sizes{kHeads, kKvHeads, kHeadDim, kBlockSize, kPoolBlocks};
  std::vector<HandPool> pools = make_hand_pools(sizes, tp_size);
  const Matrix embedding = to_matrix(in.embedding);
  const auto project = [](const Matrix& x, const Tensor& w) {
    return multiply(x, transpose(to_matrix(w)));
  };
  const BlockTable table_of_a{2, 0, 3, 7}, table_of_b{1, 4, 5, 6, 2, 0, 3, 7};
  for (const std::int32_t id : {kA, kB}) {
    const StorySequence& s = story_sequences()[static_cast<std::size_t>(id)];
    // The tokens of A and B are consecutive rows of the embedding.
    const std::int64_t first = s.token_ids.front();
    const Matrix x = embedding.rows_in({first, first + std::ssize(s.token_ids)});
    const Matrix heads = attend_by_hand(
        {project(x, in.q), project(x, in.k), project(x, in.v), id == kA ? table_of_a : table_of_b},
        sizes, pools);
    const ConstTensorView wanted = reference.heads.view().rows_in(s.rows);
    report.check(compare(fmt::format("by hand: {}, heads", letter_of(id)), heads.view(), wanted,
                         Tolerance::of_deviation(2e-5, wanted)));
  }
}

// Rank 1 calls the blocks 8 - b instead of b: its pool is private, so nobody can tell.
void show_renaming(const Options& options,
                   Report& report,
                   const Inputs& in,
                   const LayerResult& reference) {
  report.section("What is no fault: other names that never collide");
  const Accuracy accuracy = Accuracy::of(options, in.q.dtype(), 4);
  const auto tp_size = static_cast<int>(options.tp);
  if (tp_size == 1) return report.line("left out: there is no rank 1");
  const Launch launch = with_renamed_blocks(Launch::from(options), kPoolBlocks, kBlockSize);
  const Run renamed = run_story(launch, in, false);
  report.expect("rank 0, step 9, A", block_table_of(renamed.records[0].plans.at(8), kA),
                "[2 0 3 7]");
  report.expect("rank 1, step 9, A", block_table_of(renamed.records[1].plans.at(8), kA),
                "[6 8 5 1]");
  compare_heads(report, accuracy, "renamed on rank 1: heads", renamed, reference);
  compare_y(report, accuracy, "renamed on rank 1: y", renamed, reference, in);
  std::string refusal = "step 0: nothing was refused (";
  try {
    run_story(launch, in, true);
  } catch (const Error& e) {
    refusal = e.what();
  }
  const std::size_t begin = std::min(refusal.find("step "), refusal.size());
  report.expect("with the hash check all the same",
                refusal.substr(begin, refusal.find(" (") - begin),
                "step 1, seq C: rank 0 block 0, rank 1 block 8");
}

void lesson(const Options& options, bool check_hash, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  check_tp_size({kHeads, kKvHeads}, static_cast<int>(options.tp), options.uneven);
  if (tp_size == 1 && !options.fault.empty())
    throw input_error(fmt::format(
        "--fault {} with --tp 1: one rank alone cannot differ from another; use --tp 2 or more",
        options.fault));
  show_article_example(options, report);
  show_blocks_needed(report);
  show_pool_size(options, report);

  const Inputs in = make_inputs(options);
  show_run_begins(report, check_hash);
  const Run run = run_story(launch_with_fault(options, tp_size), in, check_hash);
  show_shapes(report, run);
  show_plans(report, run);
  show_message(report, run);
  show_tables(report, run);
  show_communication(report, run, check_hash);

  report.section("Compared with one device and a contiguous cache");
  const LayerResult reference = reference_of(in);
  const Accuracy accuracy = Accuracy::of(options, in.q.dtype(), 4);
  for (const std::int32_t id : {kA, kB, kC, kD}) {
    const Range rows = story_sequences()[static_cast<std::size_t>(id)].rows;
    const ConstTensorView wanted = reference.heads.view().rows_in(rows);
    report.check(compare(fmt::format("{}, heads of {} tokens", letter_of(id), rows.size()),
                         run.outputs[0].tensor("heads").rows_in(rows), wanted,
                         accuracy.same_steps(wanted)));
  }
  compare_y(report, accuracy, "A to D, y behind o_proj", run, reference, in);
  compare_by_hand(report, in, reference, tp_size);
  show_renaming(options, report, in, reference);

  report.section("The same on 1, 2, 3, 4 and 8 ranks");
  for (const int size : {1, 2, 3, 4, 8}) {
    const Run other = run_story(launch_with_fault(options, size), in, check_hash);
    compare_heads(report, accuracy, fmt::format("tp {}: A to D, heads", size), other, reference);
    compare_y(report, accuracy, fmt::format("tp {}: A to D, y", size), other, reference, in);
  }
  report.time("waiting and communicating, rank 0", run.outputs[0].ledger.total().microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  bool no_plan_hash = false;
  ChapterSpec spec;
  spec.number = "05";
  spec.name = "sharded_kv_cache";
  spec.lesson =
      "A block id means the same tokens on every rank, and on each rank other heads of them.";
  spec.example = "ch05_sharded_kv_cache --tp 4";
  spec.extra_options = {{"--no-plan-hash", &no_plan_hash, "do not compare the ranks' plans"}};
  spec.faults = plan_faults();
  for (const Fault& fault : mismatched_collective_faults()) spec.faults.push_back(fault);
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    lesson(options, !no_plan_hash, report);
  });
}

// Chapter 03: attention, its heads split over the ranks.
//
// You learn:  q, k and v are column-parallel by whole heads, so each rank computes the attention of
//             its heads alone; o_proj is row-parallel, so one all-reduce makes the output; a whole
//             decoder layer takes two.
// New here:   ShardedAttention, head_shard, and batches of several sequences with their KV cache.
// Run:        ch03_head_sharded_attention            last line: PASS
//
// Shapes, with the sizes of this chapter, pairwise different so that a swap shows:
//   x [tokens 5 + 3 + 1, hidden 50]   8 query heads and 4 KV heads of 12 features
//   q_proj [96, 50]   k_proj, v_proj [48, 50]   o_proj [50, 96]   intermediate 80
#include <set>
#include <string>

#include <fmt/format.h>

#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/faults.h"
#include "common/parallel/run_ranks.h"
#include "decoder_layer.h"
#include "one_device.h"
#include "small_examples.h"

using namespace tp;

namespace {

constexpr LayerSizes kSizes{
    .hidden = 50, .heads = 8, .kv_heads = 4, .head_dim = 12, .intermediate = 80};

struct Inputs {
  Matrix x;
  LayerWeights weights;
};

DType dtype_of_weights(const Options& options) {
  return dtype_from_name(options.dtype.empty() ? "f32" : options.dtype);
}

// Behind a number of decoder layers, of four products each.
Accuracy accuracy_of(const Options& options, std::int64_t layers = 1) {
  return Accuracy::of(options, dtype_of_weights(options), 4 * layers);
}

std::uint64_t seed_of(const Options& options) {
  return static_cast<std::uint64_t>(options.seed);
}

Inputs make_inputs(const Options& options) {
  return {random_matrix(kTokens, kSizes.hidden, seed_of(options)),
          make_layer(kSizes, dtype_of_weights(options), seed_of(options) + 1)};
}

// The lesson: each rank computes its heads, from x to its addend of y.
// [region prefill]
void prefill_on_each_rank(const RankContext& ctx,
                          RankOutput& out,
                          const Inputs& in,
                          const ShardedAttention& attention) {
  const RopeTable rope(ctx.device, kLongest, kSizes.head_dim, kRopeTheta);
  SequenceCache cache(ctx.device, attention.heads.kv.size(), kSizes.head_dim);
  AttentionBuffers buffers(ctx, attention, kTokens);
  const Tensor x = ctx.device.write(in.x.view(), "activations");  // the same on every rank
  Tensor y = activations(ctx, kTokens, kSizes.hidden);
  const Step step = prefill();  // all tokens of three sequences

  const PartialSum partial =
      attention.partial(ctx, x, rope, step.batch.view(), cache.layer(), buffers.steps(), y);
  out.keep("q", buffers.q);  // of this rank's heads; nothing was sent
  out.keep("k", buffers.k);
  out.keep("v", buffers.v);
  out.keep("attention", buffers.attention);
  out.keep("partial", partial.addend);

  const TensorView sum = sum_over_ranks(ctx, partial, "o_proj");
  out.keep("sum", sum);
  ctx.device.add_bias(sum, attention.o.bias);  // once, after the sum
  out.keep("y", sum);
}
// [end prefill]

// The same tokens, one of each sequence at a time; earlier ones are found in the cache.
// [region decode]
void decode_on_each_rank(const RankContext& ctx,
                         RankOutput& out,
                         const Inputs& in,
                         const ShardedAttention& attention) {
  const RopeTable rope(ctx.device, kLongest, kSizes.head_dim, kRopeTheta);
  SequenceCache cache(ctx.device, attention.heads.kv.size(), kSizes.head_dim);
  const Tensor all_x = ctx.device.write(in.x.view(), "activations");
  Tensor all_y = activations(ctx, kTokens, kSizes.hidden);
  for (const Step& step : decode()) {
    const auto tokens = static_cast<std::int64_t>(step.rows.size());
    AttentionBuffers buffers(ctx, attention, tokens);
    Tensor x = activations(ctx, tokens, kSizes.hidden), y = activations(ctx, tokens, kSizes.hidden);
    ctx.device.select_rows(all_x, step.rows, x);
    const PartialSum partial =
        attention.partial(ctx, x, rope, step.batch.view(), cache.layer(), buffers.steps(), y);
    attention.o.finish(ctx, partial, "o_proj");  // the sum, and the bias
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = step.rows[static_cast<std::size_t>(i)];
      ctx.device.copy(y.view().rows_in({i, i + 1}), all_y.view().rows_in({row, row + 1}));
    }
  }
  out.keep("y", all_y);
}
// [end decode]

// Runs body(ctx, out) on tp_size ranks.
template <class Body>
std::vector<RankOutput> run_split(const Options& options, int tp_size, const Body& body) {
  Launch launch = with_fault(Launch::from(options), options.fault);
  launch.tp_size = tp_size;
  return run_ranks(launch, [&](RankContext& ctx, RankOutput& out) {
    ctx.group.barrier();  // so that no rank waits for a thread that is still starting
    body(ctx, out);
  });
}

std::vector<RankOutput> run_prefill(const Options& options, int tp_size, const Inputs& in) {
  return run_split(options, tp_size, [&](RankContext& ctx, RankOutput& out) {
    prefill_on_each_rank(ctx, out, in, load_attention(ctx, in.weights, options.fault));
  });
}

std::vector<RankOutput> run_decode(const Options& options, int tp_size, const Inputs& in) {
  return run_split(options, tp_size, [&](RankContext& ctx, RankOutput& out) {
    decode_on_each_rank(ctx, out, in, load_attention(ctx, in.weights, options.fault));
  });
}

// One whole decoder layer.
std::vector<RankOutput> run_layer(const Options& options, int tp_size, const Inputs& in) {
  return run_split(options, tp_size, [&](RankContext& ctx, RankOutput& out) {
    const DecoderLayer layer = DecoderLayer::load(ctx, in.weights, options.fault);
    Tensor x = ctx.device.write(in.x.view(), "activations");
    layer.add_attention(ctx, x);
    out.keep("after attention", x);
    layer.add_mlp(ctx, x);
    out.keep("output", x);
  });
}

std::vector<HeadShard> head_shards(int tp_size) {
  std::vector<HeadShard> shards;
  for (int r = 0; r < tp_size; ++r)
    shards.push_back(head_shard(kSizes.heads, kSizes.kv_heads, r, tp_size));
  return shards;
}

// The features of heads: columns of q, k, v and the attention, rows of their weights.
Range features(Range heads) {
  return heads.times(kSizes.head_dim);
}

void show_shapes(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  report.section("Shapes");
  const std::size_t size = size_of(dtype_of_weights(options));
  Table heads{"heads", {"rank", "query heads", "KV heads"}, {}};
  std::vector<std::string> q, kv, o, q_bytes, kv_bytes;
  for (const HeadShard& shard : head_shards(tp_size)) {
    heads.rows.push_back(
        {std::to_string(heads.rows.size()), cell_of(shard.query), cell_of(shard.kv)});
    const std::int64_t q_rows = features(shard.query).size(), kv_rows = features(shard.kv).size();
    q.push_back(Shape{q_rows, kSizes.hidden}.to_string());
    kv.push_back(Shape{kv_rows, kSizes.hidden}.to_string());
    o.push_back(Shape{kSizes.hidden, q_rows}.to_string());
    q_bytes.push_back(std::to_string(static_cast<std::size_t>(q_rows * kSizes.hidden) * size));
    kv_bytes.push_back(std::to_string(static_cast<std::size_t>(kv_rows * kSizes.hidden) * size));
  }
  report.table(heads);
  if (kSizes.heads % tp_size != 0)
    report.line(fmt::format("uneven: the largest rank has {:.1f} % more query heads than the mean",
                            imbalance_percent(kSizes.heads, tp_size)));

  Table weights{
      "shapes", {"weight", "whole", "bytes", "split by", "on each rank", "bytes on each rank"}, {}};
  const auto add = [&](const char* name, const Shape& whole, const char* by, const auto& local,
                       const auto& bytes) {
    weights.rows.push_back({name, whole.to_string(),
                            std::to_string(static_cast<std::size_t>(whole.elements()) * size), by,
                            cell_of(local), cell_of(bytes)});
  };
  add("q_proj", {kSizes.q_size(), kSizes.hidden}, "query heads", q, q_bytes);
  add("k_proj", {kSizes.kv_size(), kSizes.hidden}, "KV heads", kv, kv_bytes);
  add("v_proj", {kSizes.kv_size(), kSizes.hidden}, "KV heads", kv, kv_bytes);
  add("o_proj", {kSizes.hidden, kSizes.q_size()}, "query heads", o, q_bytes);
  report.table(weights);
}

void show_addends(Report& report,
                  const std::vector<RankOutput>& ranks,
                  const Inputs& in,
                  const OneDeviceAttention& one) {
  constexpr Range kToken{kLengths[0] - 1, kLengths[0]}, kSix{0, 6};
  report.section("What each rank holds for the last token of sequence 0 (six features)");
  const auto six = [&](ConstTensorView m) {
    return format_row(to_matrix(m.rows_in(kToken).columns_in(kSix)));
  };
  const std::vector<HeadShard> shards = head_shards(static_cast<int>(ranks.size()));
  for (std::size_t r = 0; r < ranks.size(); ++r)
    report.line(fmt::format("rank {} heads {:<5} {}", r, cell_of(shards[r].query),
                            six(ranks[r].tensor("partial"))));
  report.line("their sum          " + six(ranks[0].tensor("sum")));
  report.line("bias of o_proj     " + format_row(in.weights.o.bias.cols_in(kSix)));
  report.line("sum + bias         " + six(ranks[0].tensor("y")));
  report.line("one device         " + six(one.y.view()));
}

std::vector<RankOutput> run_stack(const Options& options, const Stack& stack) {
  return run_split(options, static_cast<int>(options.tp), [&](RankContext& ctx, RankOutput& out) {
    stack.on_each_rank(ctx, out, options.fault);
  });
}

// What was sent: behind attention alone, and in 80 layers that are really run.
void show_communication(Report& report, const Ledger& attention, const Ledger& stack) {
  report.section("Communication of rank 0 (attention, prefill)");
  report.table(attention.to_table());
  report.section("Communication of rank 0 (80 decoder layers)");
  const LayerSizes& s = Stack::kSizes;
  report.line(fmt::format(
      "hidden {}, {} query and {} KV heads of {}, intermediate {}, vocabulary {}, {} tokens",
      s.hidden, s.heads, s.kv_heads, s.head_dim, s.intermediate, Stack::kVocab, kTokens));
  report.table(stack.to_table());
  const std::int64_t o = stack.total(Op::all_reduce, "o_proj").calls;
  const std::int64_t down = stack.total(Op::all_reduce, "down_proj").calls;
  report.expect("all_reduces labelled o_proj", o, Stack::kLayers);
  report.expect("all_reduces labelled down_proj", down, Stack::kLayers);
  report.expect("all_reduces in the 80 layers", o + down, 160);
  report.expect("calls before and behind the layers", stack.total().calls - o - down, 2);
}

// y against one device: where the order of the sum differs, by what its terms allow.
void compare_output(Report& report,
                    const Accuracy& accuracy,
                    int tp_size,
                    const std::vector<RankOutput>& ranks,
                    const Inputs& in,
                    const OneDeviceAttention& one) {
  const double magnitude = max_dot_magnitude(one.attention.view(), in.weights.o.weight);
  const Tolerance reordered = Tolerance::reordered_sum(kSizes.q_size(), magnitude);
  report.check(compare_on_every_rank(fmt::format("y, tp {}", tp_size), ranks, "y", one.y.view(),
                                     accuracy.row_parallel(tp_size, reordered, one.y.view())));
}

// Prefill against one device, tensor by tensor, and decode against prefill.
void compare_attention(Report& report,
                       const Options& options,
                       int tp_size,
                       const Inputs& in,
                       const OneDeviceAttention& one) {
  const Accuracy accuracy = accuracy_of(options);
  const auto ranks = run_prefill(options, tp_size, in);
  std::vector<Range> query, kv;
  for (const HeadShard& shard : head_shards(tp_size)) {
    query.push_back(features(shard.query));
    kv.push_back(features(shard.kv));
  }
  const auto check_heads = [&](const char* name, const Matrix& whole,
                               const std::vector<Range>& columns) {
    report.check(compare_column_shards(fmt::format("{}, tp {}", name, tp_size), ranks, name,
                                       whole.view(), columns, accuracy.same_steps(whole.view())));
  };
  check_heads("q", one.q, query);
  check_heads("k", one.k, kv);
  check_heads("v", one.v, kv);
  check_heads("attention", one.attention, query);
  compare_output(report, accuracy, tp_size, ranks, in, one);
  report.check(compare_on_every_rank(fmt::format("decode = prefill, tp {}", tp_size),
                                     run_decode(options, tp_size, in), "y", ranks[0].tensor("y"),
                                     accuracy.same_steps(ranks[0].tensor("y"))));
}

// By hand, in the articles' layout, for sequence 0; the biases of q, k and v are left out there.
void compare_by_hand(Report& report, const Options& options) {
  Inputs plain = make_inputs(options);
  LayerWeights& w = plain.weights;
  for (StoredLinear* layer : {&w.q, &w.k, &w.v}) layer->bias = Matrix(1, layer->bias.cols);
  const Range sequence{0, kLengths[0]};
  const Matrix reference = attention_on_one_device(w, plain.x).y.rows_in(sequence);
  const auto article = [](const StoredLinear& layer) { return transpose(to_matrix(layer.weight)); };
  const HandAttention attention{kSizes.heads, kSizes.kv_heads, kSizes.head_dim, article(w.q),
                                article(w.k), article(w.v),    article(w.o)};
  const HandResult hand =
      attention_by_hand(plain.x.rows_in(sequence), attention, static_cast<int>(options.tp));
  report.check(compare("by hand, without q, k, v biases", add_row(hand.y, w.o.bias).view(),
                       reference.view(), Tolerance::of_deviation(2e-5, reference.view())));
}

// The stack, where an error of one layer would have 79 more to grow in.
void compare_stack(Report& report,
                   const Options& options,
                   const Stack& stack,
                   ConstTensorView logits) {
  const auto tp_size = static_cast<int>(options.tp);
  const Matrix reference = stack.on_one_device();
  const Tolerance measured = Tolerance::of_deviation(2e-5, reference.view());
  report.check(compare(
      fmt::format("logits behind 80 layers, tp {}", tp_size), logits, reference.view(),
      accuracy_of(options, Stack::kLayers).row_parallel(tp_size, measured, reference.view())));
}

// What a rank has loaded and called, from its own counters.
void check_counters(Report& report, const std::vector<RankOutput>& ranks, DType dtype) {
  const std::vector<HeadShard> shards = head_shards(static_cast<int>(ranks.size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::int64_t q = features(shards[r].query).size(), kv = features(shards[r].kv).size();
    const std::int64_t weights = (2 * q + 2 * kv) * kSizes.hidden;
    const std::int64_t biases = q + 2 * kv + kSizes.hidden;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    report.expect(fmt::format("bytes of weights and biases on rank {}", r),
                  ranks[r].memory.use("weights").peak_bytes, weights * size + biases * 4);
    report.expect(fmt::format("calls of rank {} in q, k, v, attention and o_proj", r),
                  ranks[r].ledger.total().calls, 1);
  }
}

void compare_layer(Report& report,
                   const Options& options,
                   int tp_size,
                   const Inputs& in,
                   const OneDeviceLayer& one) {
  const auto ranks = run_layer(options, tp_size, in);
  const auto check = [&](const char* name, const Matrix& reference) {
    const Tolerance measured = Tolerance::of_deviation(2e-5, reference.view());
    report.check(compare_on_every_rank(
        fmt::format("{}, tp {}", name, tp_size), ranks, name, reference.view(),
        accuracy_of(options).row_parallel(tp_size, measured, reference.view())));
  };
  check("after attention", one.after_attention);
  check("output", one.output);
}

void lesson(const Options& options, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  check_tp_size({kSizes.heads, kSizes.kv_heads, kSizes.intermediate}, tp_size, options.uneven);
  show_article_example(report);
  show_usable_tp_sizes(report);
  show_rope_pairs(report);
  show_shapes(options, report);

  const Inputs in = make_inputs(options);
  const OneDeviceAttention one = attention_on_one_device(in.weights, in.x);
  const auto ranks = run_prefill(options, tp_size, in);
  show_addends(report, ranks, in, one);
  const Stack stack = Stack::make(dtype_of_weights(options), seed_of(options));
  const auto stack_ranks = run_stack(options, stack);
  show_communication(report, ranks[0].ledger, stack_ranks[0].ledger);

  report.section("Compared with one device");
  report.line("prefill: 1 step of 9 rows; decode: 5 steps of 3, 2, 2, 1 and 1 rows");
  compare_attention(report, options, tp_size, in, one);
  compare_by_hand(report, options);
  compare_stack(report, options, stack, stack_ranks[0].tensor("logits"));
  check_counters(report, ranks, dtype_of_weights(options));

  report.section("The same on other numbers of ranks");
  report.line("3 and 5 ranks split 8 query heads and 4 KV heads unevenly");
  for (const int size : {1, 2, 3, 4, 5, 8})
    if (size != tp_size) compare_attention(report, options, size, in, one);

  report.section("One whole decoder layer, compared with an unsplit one");
  const OneDeviceLayer whole = layer_on_one_device(in.weights, in.x);
  for (const int size : std::set<int>{1, 2, 3, 4, 5, 8, tp_size})
    compare_layer(report, options, size, in, whole);
  const Ledger ledger = run_layer(options, tp_size, in)[0].ledger;
  report.expect("all_reduces of o_proj", ledger.total(Op::all_reduce, "o_proj").calls, 1);
  report.expect("all_reduces of down_proj", ledger.total(Op::all_reduce, "down_proj").calls, 1);
  report.expect("calls in all", ledger.total().calls, 2);
  report.time("waiting and communicating, attention", ranks[0].ledger.total().microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  ChapterSpec spec;
  spec.number = "03";
  spec.name = "head_sharded_attention";
  spec.lesson =
      "Each rank computes the attention of its own heads; one all-reduce behind o_proj joins them.";
  spec.example = "ch03_head_sharded_attention --tp 4";
  spec.faults = {
      {"bias_added_tp_times", "every rank adds the biases of o_proj and down_proj before the sum"},
      {"concat_instead_of_sum", "partial sums are put side by side instead of being added"},
      {"skip_all_reduce", "partial sums are taken for the result"},
      {"shards_swapped", "the shards of o_proj and down_proj are dealt in reverse order"},
      {"wrong_kv_map", "each rank loads the KV heads of the next one"}};
  for (const Fault& fault : mismatched_collective_faults()) spec.faults.push_back(fault);
  return chapter_main(argc, argv, spec, lesson);
}

// Chapter 06: a mini inference engine, every layer of it split over ranks.
//
// You learn:  how the pieces of the earlier chapters make an engine: rank 0 alone holds requests,
//             schedules, samples and hands out KV blocks (control plane); each step it broadcasts one
//             plan, which all ranks run on their shards (execution plane).
// New here:   model/ (config, weights, tokenizer, decoder) and engine/ (scheduler, model runner,
//             sampler, engine).
// Run:        ch06_mini_engine --prompt "She had been"       last line: PASS
//
// Shapes, with the bundled model's values: hidden 256, 8 query heads and 2 KV heads of 32,
// intermediate 704, vocabulary 4353 (padded to a multiple of the ranks), 6 layers.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/core/chapter.h"
#include "common/core/error.h"
#include "common/core/plural.h"
#include "compare.h"
#include "engine_faults.h"
#include "load.h"
#include "show.h"
#include "texts.h"

using namespace tp;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// What rank 0 brings home.
struct Outcome {
  std::vector<Completion> completions;  // one per entry of the job
  Scheduler::Counters counters;
  Engine::Times times;
  std::int64_t peak_blocks = 0;
  BatchPlan shown_plan;  // of the step asked for with --show-batch
  std::size_t shown_bytes = 0;
  Inspection inspection;        // whose modules are compared one by one
  std::int64_t operations = 0;  // of a captured step
  std::string why_eager;        // no step was captured
  double load_us = 0, generate_us = 0, communicate_us = 0;
};

// Rank 0: all requests, to their ends, their texts printed as they come.
// [region control_plane]
void run_requests(const Job& job,
                  const EngineOptions& options,
                  ModelRunner& runner,
                  Report& report,
                  Outcome& out) {
  Engine engine(runner, job.limits, kKeptLogitBytes);
  Texts texts(report, job);
  std::vector<std::size_t> entry_of;  // by the engine's number of the request
  out.completions.resize(job.entries.size());
  const auto finished = [&](std::size_t entry, Completion done) {
    if (!done.error.empty()) done.error = job.entries[entry].name + ": " + done.error;
    texts.finish(entry, done);
    out.completions[entry] = std::move(done);
  };
  for (std::size_t i = 0; i < job.entries.size(); ++i) {
    if (!job.entries[i].error.empty()) {
      Completion failed;
      failed.reason = FinishReason::error;
      failed.error = job.entries[i].error;
      finished(i, std::move(failed));
      continue;
    }
    const std::int32_t id = engine.add_request(job.entries[i].request);
    entry_of.push_back(i);
    if (engine.completion(id).reason != FinishReason::none) finished(i, engine.take(id));
  }
  while (!engine.idle()) {
    for (const Engine::NewToken& token : engine.step())
      texts.add(entry_of[static_cast<std::size_t>(token.id)], token.token);
    for (const std::int32_t id : engine.finished())
      finished(entry_of[static_cast<std::size_t>(id)], engine.take(id));
    if (options.show_batch == static_cast<std::int64_t>(engine.plan().step)) {
      out.shown_plan.decode(runner.message());
      out.shown_bytes = runner.message().size();
    }
  }
  out.counters = engine.scheduler().counters();
  out.peak_blocks = engine.scheduler().blocks().peak_used_blocks();
  out.times = engine.times();
  out.operations = runner.graphs().operations();
  out.why_eager = runner.graphs().why_not();
}
// [end control_plane]

// A prompt and what was made of it, as one plan with the logits of every token.
void run_inspection(const Job& job, ModelRunner& runner, const Tap& keep, Outcome& out) {
  const auto spoke = std::find_if(out.completions.begin(), out.completions.end(),
                                  [](const Completion& c) { return !c.ids.empty(); });
  if (spoke == out.completions.end()) return;
  const auto index = static_cast<std::size_t>(spoke - out.completions.begin());
  std::vector<std::int32_t> ids = job.entries[index].request.prompt_ids;
  ids.insert(ids.end(), spoke->ids.begin(), spoke->ids.end() - 1);
  out.inspection.entry = index;
  out.inspection.all_tokens = ids.size();
  const auto limit = std::min(job.max_cached_tokens(), job.limits.max_num_batched_tokens);
  if (std::ssize(ids) > limit) ids.resize(static_cast<std::size_t>(limit));
  BlockTable table(static_cast<std::size_t>(blocks_for(std::ssize(ids), job.block_size)));
  std::iota(table.begin(), table.end(), 0);  // all blocks are free again
  BatchPlan plan;
  plan.add(0, ids, 0, table, job.block_size, std::ssize(ids));
  runner.lead(plan, keep);
  out.inspection.ids = std::move(ids);
}

// On a GPU: how decode steps were launched.
void show_launches(Report& report, const Outcome& out) {
  const Engine::Times& times = out.times;
  if (!out.why_eager.empty())
    report.line(fmt::format("{} launched operation by operation (eager): {}",
                            plural(times.eager_steps, "decode step"), out.why_eager));
  if (out.operations == 0) return;
  report.line(fmt::format(
      "{} launched operation by operation, {} as a captured step: 1 launch of {} operations",
      plural(times.eager_steps, "decode step"), times.replayed_steps, out.operations));
  report.record("/captured_operations", out.operations);
}

void show_steps(Report& report, const Job& job, const EngineOptions& options, const Outcome& out) {
  const Scheduler::Counters& c = out.counters;
  report.section("Steps");
  report.line(fmt::format("{}: {} and {} generated ones were run, at most {} together",
                          plural(c.steps, "step"), plural(c.prompt_tokens, "prompt token"),
                          c.generated_tokens, plural(c.most_running, "sequence")));
  report.line(
      fmt::format("{} preemptions, {} tokens computed again; at most {} of {} blocks in use",
                  c.preemptions, c.recomputed_tokens, out.peak_blocks, job.pool.num_blocks));
  show_launches(report, out);
  report.record("/steps", c.steps);
  report.record("/preemptions", c.preemptions);
  report.record("/recomputed_tokens", c.recomputed_tokens);
  if (!options.show_batch) return;
  if (out.shown_plan.stop()) {
    report.line(fmt::format("step {} did not take place", *options.show_batch));
    return;
  }
  report.section(fmt::format("Step {} as every rank read it ({} bytes)", out.shown_plan.step,
                             out.shown_bytes));
  report.table(out.shown_plan.to_table("batch"));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void show_times(Report& report, const Outcome& out) {
  const Scheduler::Counters& c = out.counters;
  std::vector<double> ttft, tpot;
  for (const Completion& done : out.completions) {
    if (!done.ids.empty()) ttft.push_back(done.ttft_us);
    if (done.tpot_us) tpot.push_back(*done.tpot_us);  // one token alone has none
  }
  const auto summary = [&](const std::string& name, const std::vector<double>& values) {
    if (values.empty()) return;
    if (values.size() == 1) return report.time(name, values[0]);
    report.time(fmt::format("{}, median of {}", name, values.size()), median(values));
    report.time(name + ", longest", *std::max_element(values.begin(), values.end()));
  };
  const auto rate = [&](const std::string& name, std::int64_t tokens, double us) {
    if (tokens > 0)
      report.time(name, fmt::format("{:.0f} tokens/s", static_cast<double>(tokens) / us * 1e6));
  };
  report.time("loading, all ranks", out.load_us);
  summary("time to first token (TTFT)", ttft);
  summary("time per output token (TPOT)", tpot);
  rate("prefill", c.prompt_tokens + c.recomputed_tokens, out.times.prefill_us);
  rate("decode", c.generated_tokens, out.times.decode_us);
  const auto step_time = [&](const std::string& name, double us, std::int64_t steps) {
    if (out.operations > 0 && steps > 0) report.time(name, us / static_cast<double>(steps));
  };
  step_time("decode step, operation by operation", out.times.eager_us, out.times.eager_steps);
  step_time("decode step, captured", out.times.replayed_us, out.times.replayed_steps);
  report.time("share of communication in generating",
              fmt::format("{:.1f} %", 100 * out.communicate_us / out.generate_us));
}

void lesson(const Options& options, const EngineOptions& engine_options, Report& report) {
  const Clock::time_point start = Clock::now();
  Job job = Job::prepare(options, engine_options);
  const auto tp_size = static_cast<int>(options.tp);
  check_fault_applies(options.fault, job, tp_size);
  const Weights weights = Weights::open(job.folder, job.config, job.store_as);
  job.set_accuracy(options, weights);
  show_shapes(report, job, options, weights);
  if (engine_options.explain_load) return explain_load(job, options, weights, report);

  const bool layers = engine_options.compare == "layers";
  Outcome out;
  const auto on_each_rank = [&](RankContext& ctx, RankOutput& output) {
    Decoder decoder = load_decoder(ctx, job, weights,
                                   shard_with_fault(options.fault, job.config, ctx.rank, tp_size),
                                   job.decoder_limits(layers), report);
    const KvPoolSize pool = agree_on_pool_size(ctx, kv_budget(ctx, options, engine_options, job));
    decoder.make_kv_cache(ctx, pool.num_blocks);
    if (ctx.rank == 0) job.pool = pool;
    spoil_loaded(ctx, options.fault, decoder);
    // Whose modules are looked at cannot be captured.
    const bool capture_steps = !engine_options.enforce_eager && !layers;
    ModelRunner runner(ctx, decoder, !engine_options.no_plan_hash, capture_steps);
    show_memory(report, job, ctx);
    Tap keep;  // of each module what the last step computed
    if (layers)
      keep = [&](const std::string& name, ConstTensorView tensor) { output.keep(name, tensor); };
    if (ctx.rank != 0) return runner.follow(keep);

    out.load_us = microseconds_since(start);
    report.section("Text");
    run_requests(job, engine_options, runner, report, out);
    out.generate_us = microseconds_since(start) - out.load_us;
    out.communicate_us = ctx.comm.ledger().total().microseconds;
    if (layers) run_inspection(job, runner, keep, out);
    runner.stop();
  };
  const auto ranks =
      run_ranks(with_engine_fault(Launch::from(options), options.fault, job), on_each_rank);

  show_steps(report, job, engine_options, out);
  report.section("Communication of rank 0");
  report.table(ranks[0].ledger.to_table());
  show_times(report, out);
  report.section("Compared with one device");
  if (engine_options.compare == "none") report.line("nothing, as asked for");
  if (!out.inspection.ids.empty())
    compare_layers(report, job, weights, tp_size, out.inspection, ranks);
  if (engine_options.compare != "none")
    compare_tokens(report, job, weights, tp_size, out.completions);
  expect_no_errors(report, job, out.completions);
}

}  // namespace

int main(int argc, char** argv) {
  EngineOptions engine;
  ChapterSpec spec;
  spec.number = "06";
  spec.name = "mini_engine";
  spec.lesson = "A model on several ranks says, token for token, what it says on one device.";
  spec.example = "ch06_mini_engine --tp 4 --prompt \"She had been\" --sampling model --seed 7";
  spec.default_dtype = "as stored";
  spec.kv_dtypes = {"f32", "bf16", "f16"};
  spec.faults = engine_faults();
  spec.extra_options = engine_flags(engine);
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    lesson(options, engine, report);
  });
}

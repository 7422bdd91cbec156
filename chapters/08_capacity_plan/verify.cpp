#include "verify.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/plural.h"
#include "common/engine/engine.h"
#include "common/parallel/faults.h"
#include "common/parallel/run_ranks.h"
#include "common/plan/engine_memory.h"
#include "plan_faults.h"

namespace tp {

namespace {

// Of all requests, once for each number of ranks: half a minute with the bundled model on two cores.
constexpr std::int64_t kMostTokensRun = 1 << 15;
constexpr std::int64_t kGenerated = 8;  // the last tokens of a request, one in each step

// How the stated load is put to the engine: all requests begin and end in the same steps, so that
// all of them have their full length in the cache at once.
struct Load {
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;  // the last of them needs no place in the cache
  SchedulerLimits scheduler;
  DecoderLimits decoder;

  static Load of(const PlanInput& input) {
    Load load;
    load.requests = input.concurrency;
    load.prompt_tokens = std::max<std::int64_t>(1, input.max_model_len - kGenerated);
    load.new_tokens = input.max_model_len - load.prompt_tokens + 1;
    const std::int64_t first_step = load.requests * load.prompt_tokens;
    load.scheduler = {load.requests, first_step, load.prompt_tokens, input.max_model_len};
    load.decoder = {input.max_model_len, first_step, load.requests, input.block_size,
                    input.needed_blocks()};
    return load;
  }

  Request request(std::int64_t index, std::int64_t vocab_size) const {
    Request request;
    for (std::int64_t i = 0; i < prompt_tokens; ++i)
      request.prompt_ids.push_back(static_cast<std::int32_t>((index * 31 + i * 7) % vocab_size));
    request.max_new_tokens = new_tokens;
    request.ignore_eos = true;
    return request;
  }
};

// A rank's memory as it is planned.
MemoryByTag planned_memory(const PlanInput& input, const Load& load, const CardPlan& card) {
  const StepMemory step = StepMemory::of(input.config, load.decoder, card.place.rank,
                                         card.place.tp_size, input.max_model_len);
  return engine_memory(card, step, input.needed_blocks(), input.block_size);
}

// The plan of all ranks. The overhead of a rank is what its step needs.
LayoutPlan plan_ranks(const PlanInput& input,
                      const Load& load,
                      int tp_size,
                      const std::string& fault) {
  const CardHook hook = hook_of(fault);
  return plan_layout(input, tp_size, 1, [&](const PlanInput& of, CardPlan& card) {
    card.overhead = {
        0, 0,
        StepMemory::of(of.config, load.decoder, card.place.rank, tp_size, of.max_model_len)
            .activation_bytes};
    if (hook) hook(of, card);
  });
}

struct Outcome {
  Scheduler::Counters counters;
  std::int64_t peak_blocks = 0;
  std::int64_t finished = 0;  // requests that reached their full length
};

// [region run_load]
std::vector<RankOutput> run_load(const PlanJob& job,
                                 const Options& options,
                                 const Weights& weights,
                                 const Load& load,
                                 int tp_size,
                                 Outcome& out) {
  Launch launch = Launch::from(options);
  launch.tp_size = tp_size;
  return run_ranks(with_fault(launch, options.fault), [&](RankContext& ctx, RankOutput&) {
    Decoder decoder(ctx, job.input.config, weights,
                    DecoderShard::of(job.input.config, ctx.rank, tp_size), load.decoder);
    ModelRunner runner(ctx, decoder);
    if (ctx.rank != 0) return runner.follow();
    Engine engine(runner, load.scheduler);
    for (std::int64_t i = 0; i < load.requests; ++i)
      engine.add_request(load.request(i, job.input.config.vocab_size));
    while (!engine.idle()) engine.step();
    runner.stop();
    out.counters = engine.scheduler().counters();
    out.peak_blocks = engine.scheduler().blocks().peak_used_blocks();
    for (std::int32_t id = 0; id < engine.num_requests(); ++id)
      if (engine.completion(id).reason == FinishReason::length) ++out.finished;
  });
}
// [end run_load]

std::string text_of(const MemoryByTag& memory) {
  std::string text;
  for (const auto& [tag, bytes] : memory)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tag, bytes);
  return text;
}

MemoryByTag allocated(const MemoryCounter& counter) {
  MemoryByTag memory;
  for (const auto& [tag, use] : counter.uses()) memory[tag] = use.peak_bytes;
  return memory;
}

void check_tokens(const PlanJob& job) {
  const PlanInput& input = job.input;
  const auto runs = static_cast<std::int64_t>(job.sizes.size());
  const std::int64_t of_a_request = input.blocks_per_request() * input.block_size * runs;
  const std::int64_t possible = kMostTokensRun / of_a_request;
  if (input.concurrency <= possible) return;
  throw input_error(fmt::format(
      "--verify --concurrency {}: at most {} of {}, in blocks of {}, can be run on "
      "{} ({} tokens in all, about half a minute); lower --concurrency, --max-model-len or "
      "--block-size{}",
      input.concurrency, plural(possible, "request"), plural(input.max_model_len, "token"),
      input.block_size, runs == 1 ? "one tp" : fmt::format("{} sizes of tp", runs), kMostTokensRun,
      runs == 1 ? "" : ", or give one --tp"));
}

void check_memory(const PlanInput& input,
                  const std::vector<LayoutPlan>& layouts,
                  const Load& load) {
  const double machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  for (const LayoutPlan& layout : layouts) {
    double needed = 0;
    for (const CardPlan& card : layout.cards)
      for (const auto& [tag, bytes] : planned_memory(input, load, card))
        needed += static_cast<double>(bytes);
    if (needed > machine)
      throw input_error(fmt::format(
          "--verify: tp {} needs {:.1f} GiB, but this machine has {:.1f} GiB of memory; lower "
          "--concurrency {} or --max-model-len {}",
          layout.tp_size, needed / (1 << 30), machine / (1 << 30), input.concurrency,
          input.max_model_len));
  }
}

}  // namespace

void verify_plan(const PlanJob& job, const Options& options, Report& report) {
  const PlanInput& input = job.input;
  check_tokens(job);
  const Load load = Load::of(input);
  std::vector<LayoutPlan> layouts;
  for (const LayoutSize& size : job.sizes)
    layouts.push_back(plan_ranks(input, load, size.tp_size, options.fault));
  check_memory(input, layouts, load);
  // Ids that end a text and the like are read only here, where they must be right.
  const ModelConfig config = ModelConfig::load(job.folder);
  const Weights weights =
      Weights::open(job.folder, config, dtype_from_name(input.weights.format.name));

  report.line(fmt::format("load: {} of {} in the cache: prompts of {}, then {} with one token each",
                          plural(load.requests, "request"), plural(input.max_model_len, "token"),
                          load.prompt_tokens, plural(load.new_tokens - 1, "step")));
  report.line(
      fmt::format("pools of {}, as many as the load needs; stages (--pp) are planned, not run",
                  plural(input.needed_blocks(), "block")));

  Table table{"verify",
              {"tp", "rank", "KV heads", "weights", "replicated", "KV cache", "activations",
               "rope table", "workspace"},
              {}};
  std::vector<Outcome> outcomes(layouts.size());
  std::vector<std::vector<RankOutput>> ranks(layouts.size());
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    ranks[i] = run_load(job, options, weights, load, layouts[i].tp_size, outcomes[i]);
    for (const CardPlan& card : layouts[i].cards) {
      const MemoryByTag memory = planned_memory(input, load, card);
      table.rows.push_back(
          {std::to_string(layouts[i].tp_size), std::to_string(card.place.rank),
           std::to_string(card.kv_heads), std::to_string(memory.at("weights")),
           std::to_string(card.weights.replicated), std::to_string(memory.at("kv")),
           std::to_string(memory.at("activations")), std::to_string(memory.at("rope")),
           std::to_string(memory.at("workspace"))});
    }
  }
  report.section("Bytes on each rank, as planned");
  report.table(table);

  report.section("Communication of rank 0");
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto total = ranks[i].at(0).ledger.total();
    report.line(fmt::format("tp {}: {} calls, {} payload bytes", layouts[i].tp_size, total.calls,
                            total.payload_bytes));
  }

  report.section("Compared with what the engine allocated and used");
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const int tp_size = layouts[i].tp_size;
    for (const CardPlan& card : layouts[i].cards)
      report.expect(
          fmt::format("tp {}, rank {}", tp_size, card.place.rank),
          text_of(allocated(ranks[i].at(static_cast<std::size_t>(card.place.rank)).memory)),
          text_of(planned_memory(input, load, card)));
    report.expect(fmt::format("tp {}, most blocks in use", tp_size), outcomes[i].peak_blocks,
                  input.needed_blocks());
    report.expect(fmt::format("tp {}, preemptions", tp_size), outcomes[i].counters.preemptions, 0);
    report.expect(fmt::format("tp {}, requests at the same time", tp_size),
                  outcomes[i].counters.most_running, load.requests);
    report.expect(fmt::format("tp {}, requests that reached their length", tp_size),
                  outcomes[i].finished, load.requests);
  }
}

}  // namespace tp

// Chapter 06: a mini inference engine, every layer of it split over ranks.
//
// You learn:  how the pieces of the earlier chapters make a model: column-parallel into the heads
//             and the intermediate features, row-parallel out of them, two all-reduces per layer;
//             rank 0 decides what to run and samples, all ranks compute.
// New here:   model/ (config, weights, tokenizer, decoder) and engine/ (sampler, steps).
// Run:        ch06_mini_engine --prompt "She had been"       last line: PASS
//
// Shapes, with the bundled model's values: hidden 256, 8 query heads and 2 KV heads of 32,
// intermediate 704, vocabulary 4353 (padded to a multiple of the ranks), 6 layers.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/core/chapter.h"
#include "common/core/error.h"
#include "common/model/stream_decoder.h"
#include "compare.h"
#include "engine_faults.h"
#include "requests.h"

using namespace tp;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void show_shapes(Report& report, const Job& job, const Options& options, const Weights& weights) {
  const ModelConfig& c = job.config;
  const auto tp_size = static_cast<int>(options.tp);
  report.line(fmt::format(
      "model {}: {} layers, hidden {}, {} query heads and {} KV heads of {}, intermediate {}, "
      "vocabulary {}",
      job.folder.filename().string(), c.num_hidden_layers, c.hidden_size, c.num_attention_heads,
      c.num_key_value_heads, c.head_dim, c.intermediate_size, c.vocab_size));
  for (const std::string& note : weights.notes()) report.line("note: " + note);

  report.section("Shapes");
  Table table{"shards",
              {"rank", "query heads", "KV heads", "q_proj", "k_proj, v_proj", "o_proj", "gate, up",
               "down_proj", "vocabulary rows"},
              {}};
  for (int rank = 0; rank < tp_size; ++rank) {
    const DecoderShard shard = DecoderShard::of(c, rank, tp_size);
    const std::int64_t q = shard.heads.query.size() * c.head_dim,
                       kv = shard.heads.kv.size() * c.head_dim;
    const std::int64_t inter = shard_range(c.intermediate_size, rank, tp_size).size();
    const auto span = [](Range r) {
      return r.size() == 1 ? std::to_string(r.begin) : fmt::format("{}-{}", r.begin, r.end - 1);
    };
    const auto shape = [](std::int64_t a, std::int64_t b) { return Shape{a, b}.to_string(); };
    const std::int64_t pads = std::max<std::int64_t>(
        0, shard.vocab.rows.end - std::max(shard.vocab.rows.begin, c.vocab_size));
    table.rows.push_back({std::to_string(rank), span(shard.heads.query), span(shard.heads.kv),
                          shape(q, c.hidden_size), shape(kv, c.hidden_size),
                          shape(c.hidden_size, q), shape(inter, c.hidden_size),
                          shape(c.hidden_size, inter),
                          fmt::format("{} (pads: {})", span(shard.vocab.rows), pads)});
  }
  report.table(table);
  if (options.uneven &&
      !tp_problems({c.num_attention_heads, c.num_key_value_heads, c.intermediate_size}, tp_size,
                   false)
           .empty())
    report.line(
        fmt::format("uneven: the largest shard is above the mean by {:.1f} % (query heads), {:.1f} "
                    "% (intermediate)",
                    imbalance_percent(c.num_attention_heads, tp_size),
                    imbalance_percent(c.intermediate_size, tp_size)));
}

// Bytes that each rank has allocated, told to rank 0, which prints them.
void show_memory(Report& report, const RankContext& ctx) {
  const MemoryCounter& memory = ctx.device.memory();
  const std::vector<std::string> tags{"weights", "kv", "activations", "rope"};
  std::vector<std::int64_t> bytes;
  for (const std::string& tag : tags) bytes.push_back(memory.use(tag).bytes);
  bytes.push_back(memory.uploaded_bytes());
  const auto all = ctx.group.exchange(std::as_bytes(std::span(bytes)));
  if (ctx.rank != 0) return;
  report.section("Bytes on each rank");
  Table table{"memory",
              {"rank", "weights", "KV cache", "activations", "rope table", "copied from the file"},
              {}};
  for (int rank = 0; rank < ctx.tp_size; ++rank) {
    std::vector<std::string> row{std::to_string(rank)};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::int64_t value = 0;
      std::memcpy(&value,
                  all.data() + (static_cast<std::size_t>(rank) * bytes.size() + i) * sizeof value,
                  sizeof value);
      row.push_back(std::to_string(value));
    }
    table.rows.push_back(row);
  }
  report.table(table);
}

// Rank 0: one request, its text printed as it comes.
Completion speak(Report& report, const Job& job, std::size_t index, Leader& leader) {
  const Request& request = job.requests[index];
  const std::string prompt = job.tokenizer.decode(request.prompt_ids, false);
  report.stream(fmt::format("[{}] {}", index, prompt));
  StreamDecoder text(job.tokenizer, true);
  std::string spoken;
  const auto say = [&](const std::string& piece) {
    spoken += piece;
    report.stream(piece);
  };
  const Clock::time_point start = Clock::now();
  double first_us = 0;
  const auto on_token = [&](std::int32_t id) {
    if (first_us == 0) first_us = microseconds_since(start);
    say(text.push(id));
  };
  const Model model = [&](const Step& step) { return leader.run(step); };
  Completion done =
      generate(model, request, job.max_context, kMaxChunkTokens, kKeptLogitBytes, on_token);
  const double total_us = microseconds_since(start);
  say(text.finish());
  report.line(fmt::format("\n    ({} prompt tokens, {} new tokens, ended by {})",
                          request.prompt_ids.size(), done.ids.size(), name_of(done.reason)));

  const std::string path = fmt::format("/prompts/{}", index);
  report.record(path + "/prompt", prompt);
  report.record(path + "/ids", request.prompt_ids);
  report.record(path + "/new_ids", done.ids);
  report.record(path + "/text", spoken);
  report.record(path + "/finish_reason", name_of(done.reason));
  const auto later = static_cast<double>(done.ids.size()) - 1;
  report.time(fmt::format("prompt {}: time to first token (TTFT)", index), first_us);
  if (later > 0)
    report.time(fmt::format("prompt {}: time per output token (TPOT)", index),
                (total_us - first_us) / later);
  return done;
}

// One sequence to be looked at module by module: the first prompt and what was made of it.
std::vector<std::int32_t> sequence_to_inspect(const Job& job,
                                              const std::vector<Completion>& completions) {
  std::vector<std::int32_t> ids = job.requests[0].prompt_ids;
  ids.insert(ids.end(), completions[0].ids.begin(), completions[0].ids.end() - 1);
  const auto limit = static_cast<std::size_t>(std::min(job.max_context, kMaxChunkTokens));
  if (ids.size() > limit) ids.resize(limit);
  return ids;
}

void lesson(const Options& options, const EngineOptions& engine, Report& report) {
  const Clock::time_point start = Clock::now();
  const Job job = Job::prepare(options, engine);
  const auto tp_size = static_cast<int>(options.tp);
  check_fault_applies(options.fault, job.config, tp_size);
  const Weights weights = Weights::open(job.folder, job.config, job.store_as);
  show_shapes(report, job, options, weights);

  const bool layers = engine.compare == "layers";
  DecoderLimits limits{job.max_context, std::min(job.max_context, kMaxChunkTokens), 1};
  if (layers) limits.max_logit_rows = limits.max_chunk_tokens;
  std::vector<Completion> completions;
  std::vector<std::int32_t> inspected;
  double load_us = 0, speak_us = 0, communicate_us = 0;

  const auto ranks = run_ranks(
      with_engine_fault(Launch::from(options), options.fault, job.config),
      [&](RankContext& ctx, RankOutput& out) {
        Decoder decoder(ctx, job.config, weights,
                        shard_with_fault(options.fault, job.config, ctx.rank, tp_size), limits);
        spoil_loaded(options.fault, decoder, tp_size);
        show_memory(report, ctx);
        Tap keep;
        bool inspecting = false;
        if (layers)
          keep = [&](const std::string& name, ConstTensorView output) {
            if (inspecting) out.keep(name, output);
          };
        if (ctx.rank != 0) {
          inspecting = true;  // keeps the last step, which is the one to inspect
          return follow(ctx, decoder, keep);
        }
        load_us = microseconds_since(start);
        report.section("Text");
        Leader leader(ctx, decoder);
        for (std::size_t i = 0; i < job.requests.size(); ++i)
          completions.push_back(speak(report, job, i, leader));
        speak_us = microseconds_since(start) - load_us;
        communicate_us = ctx.comm.ledger().total().microseconds;
        if (layers) {
          inspecting = true;
          inspected = sequence_to_inspect(job, completions);
          leader.run({0, static_cast<std::int64_t>(inspected.size()), inspected}, keep);
        }
        leader.stop();
      });

  report.section("Communication of rank 0");
  report.table(ranks[0].ledger.to_table());
  report.time("loading, all ranks", load_us);
  report.time("share of communication in generating",
              fmt::format("{:.1f} %", 100 * communicate_us / speak_us));

  if (engine.compare != "none") {
    report.section("Compared with one device");
    if (layers) compare_layers(report, job, weights, tp_size, inspected, ranks);
    compare_tokens(report, job, weights, tp_size, completions);
  }
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
  spec.faults = engine_faults();
  spec.extra_options = engine_flags(engine);
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    lesson(options, engine, report);
  });
}

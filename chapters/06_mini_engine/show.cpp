#include "show.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/parallel/shards.h"

namespace tp {

namespace {

std::vector<std::string> shard_row(const ModelConfig& c, int rank, int tp_size) {
  const DecoderShard shard = DecoderShard::of(c, rank, tp_size);
  const std::int64_t q = shard.heads.query.size() * c.head_dim,
                     kv = shard.heads.kv.size() * c.head_dim;
  const std::int64_t inter = shard_range(c.intermediate_size, rank, tp_size).size();
  const auto shape = [](std::int64_t a, std::int64_t b) { return Shape{a, b}.to_string(); };
  const std::int64_t pads = std::max<std::int64_t>(
      0, shard.vocab.rows.end - std::max(shard.vocab.rows.begin, c.vocab_size));
  return {std::to_string(rank),
          cell_of(shard.heads.query),
          cell_of(shard.heads.kv),
          shape(q, c.hidden_size),
          shape(kv, c.hidden_size),
          shape(c.hidden_size, q),
          shape(inter, c.hidden_size),
          shape(c.hidden_size, inter),
          fmt::format("{} (pads: {})", cell_of(shard.vocab.rows), pads)};
}

// What sets the model apart from the one that the lesson shows; nothing if nothing does.
std::vector<std::string> features_of(const ModelConfig& c) {
  std::vector<std::string> features;
  if (c.qkv_bias)
    features.emplace_back(c.o_bias ? "biases of q, k, v and o_proj" : "biases of q, k and v_proj");
  if (c.mlp_bias) features.emplace_back("biases of gate, up and down_proj");
  if (c.qk_norm) features.emplace_back("a norm of each head of q and k");
  const auto slides = [](std::int64_t window) { return window != kNoWindow; };
  const auto sliding = std::find_if(c.sliding_windows.begin(), c.sliding_windows.end(), slides);
  if (sliding != c.sliding_windows.end())
    features.push_back(
        fmt::format("a sliding window of {} tokens in {} of {} layers", *sliding,
                    std::count_if(c.sliding_windows.begin(), c.sliding_windows.end(), slides),
                    c.num_hidden_layers));
  if (c.rope.type != RopeType::unscaled)
    features.push_back(
        fmt::format("RoPE stretched by {} ({})", c.rope.factor, name_of(c.rope.type)));
  return features;
}

// The values of all ranks, in rank order.
std::vector<std::vector<std::int64_t>> of_all_ranks(const RankContext& ctx,
                                                    const std::vector<std::int64_t>& mine) {
  const auto all = ctx.group.exchange(std::as_bytes(std::span(mine)));
  std::vector<std::vector<std::int64_t>> values(static_cast<std::size_t>(ctx.tp_size), mine);
  for (std::size_t r = 0; r < values.size(); ++r)
    std::memcpy(values[r].data(), all.data() + r * mine.size() * sizeof mine[0],
                mine.size() * sizeof mine[0]);
  return values;
}

void show_kv_pool(Report& report, const Job& job) {
  const std::int64_t blocks = job.pool.num_blocks, tokens = blocks * job.block_size;
  const double requests = static_cast<double>(blocks) /
                          static_cast<double>(blocks_for(job.limits.max_model_len, job.block_size));
  report.line("KV cache: " + job.pool.to_string());
  report.line(
      fmt::format("  blocks of {} tokens, {} tokens in all: {:.1f} requests at the full "
                  "context of {}",
                  job.block_size, tokens, requests, job.limits.max_model_len));
  report.line(
      fmt::format("steps: at most {} sequences and {} tokens, prompts {}", job.limits.max_num_seqs,
                  job.limits.max_num_batched_tokens,
                  job.limits.chunked_prefill_size == 0
                      ? "whole"
                      : fmt::format("in chunks of at most {}", job.limits.chunked_prefill_size)));
}

}  // namespace

void show_shapes(Report& report, const Job& job, const Options& options, const Weights& weights) {
  const ModelConfig& c = job.config;
  const auto tp_size = static_cast<int>(options.tp);
  report.line(fmt::format(
      "model {}: {} layers, hidden {}, {} query heads and {} KV heads of {}, intermediate {}, "
      "vocabulary {}",
      job.folder.filename().string(), c.num_hidden_layers, c.hidden_size, c.num_attention_heads,
      c.num_key_value_heads, c.head_dim, c.intermediate_size, c.vocab_size));
  if (const auto features = features_of(c); !features.empty())
    report.line(fmt::format("with {}", fmt::join(features, "; ")));
  for (const std::string& note : weights.notes()) report.line("note: " + note);

  report.section("Shapes");
  Table table{"shards",
              {"rank", "query heads", "KV heads", "q_proj", "k_proj, v_proj", "o_proj", "gate, up",
               "down_proj", "vocabulary rows"},
              {}};
  for (int rank = 0; rank < tp_size; ++rank) table.rows.push_back(shard_row(c, rank, tp_size));
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

void show_memory(Report& report, const Job& job, const RankContext& ctx) {
  const MemoryCounter& memory = ctx.device.memory();
  std::vector<std::int64_t> bytes;
  for (const char* tag : {"weights", "kv", "activations", "rope"})
    bytes.push_back(memory.use(tag).bytes);
  bytes.push_back(memory.uploaded_bytes());
  bytes.push_back(job.kv_budgets[static_cast<std::size_t>(ctx.rank)].bytes_per_block);
  const auto of_rank = of_all_ranks(ctx, bytes);
  if (ctx.rank != 0) return;
  report.section("Bytes on each rank");
  Table table{"memory",
              {"rank", "weights", "KV cache", "activations", "rope table", "copied from the file",
               "one KV block"},
              {}};
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    table.rows.push_back({std::to_string(r)});
    for (const std::int64_t value : of_rank[r]) table.rows.back().push_back(std::to_string(value));
  }
  report.table(table);
  show_kv_pool(report, job);
}

}  // namespace tp

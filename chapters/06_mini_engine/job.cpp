#include "job.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/engine/prompt_file.h"
#include "common/model/bundled.h"
#include "common/model/generation_config.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

constexpr char kBuiltInPrompt[] = "It is a truth universally acknowledged, that";
constexpr char kBuiltInQuestion[] = "What is the capital of France?";
// Defaults: enough for a demonstration, little enough for a laptop.
constexpr std::int64_t kDefaultModelLen = 4096, kDefaultNumSeqs = 16, kDefaultBatchedTokens = 512;

constexpr std::int64_t kMaxBlockSize = 1 << 20, kMaxMemoryMib = std::int64_t{1} << 40;

using ProblemList = std::vector<std::string>;

// So that the last part of the path is the name of the model.
std::filesystem::path without_last_slash(const std::filesystem::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

double machine_bytes() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

std::vector<std::int32_t> parse_ids(const std::string& text, ProblemList& problems) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ',')) {
      problems.push_back(fmt::format(
          "--prompt-ids {}: must be token ids with commas between, such as 1,2,3", text));
      return {};
    }
    ids.push_back(id);
    if (next == end) return ids;
    at = next + 1;
  }
}

SamplingParams sampling_params(const Options& options,
                               const EngineOptions& engine,
                               const std::filesystem::path& folder) {
  SamplingParams params;
  if (engine.sampling == "model") {
    const GenerationConfig config = GenerationConfig::load(folder);
    if (config.do_sample) {
      params.temperature = config.temperature;
      params.top_k = config.top_k;
      params.top_p = config.top_p;
    }
  } else if (engine.top_k.value_or(0) > 0 || engine.top_p.value_or(1) < 1) {
    params.temperature = 1;  // filters without a temperature mean: sample
  }
  params.temperature = engine.temperature.value_or(params.temperature);
  params.top_k = engine.top_k.value_or(params.top_k);
  params.top_p = engine.top_p.value_or(params.top_p);
  params.seed = static_cast<std::uint64_t>(options.seed);
  return params;
}

void check_prompt(const std::vector<std::int32_t>& ids,
                  const std::string& name,
                  const Job& job,
                  ProblemList& problems) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t room = job.max_cached_tokens();
  if (ids.empty()) problems.push_back(fmt::format("{}: has no tokens; give at least one", name));
  if (count > room)
    problems.push_back(
        fmt::format("{}: {} tokens, but the KV cache holds {} of one sequence "
                    "(--max-model-len, --kv-blocks)",
                    name, count, room));
  for (const std::int32_t id : ids)
    if (id < 0 || id >= job.config.vocab_size)
      problems.push_back(fmt::format("{}: token id {} is not in the vocabulary, 0 to {}", name, id,
                                     job.config.vocab_size - 1));
}

// The requests of the command line. `usual` has everything but the prompt.
void add_prompts(const EngineOptions& engine,
                 const Request& usual,
                 Job& job,
                 ProblemList& problems) {
  const auto add = [&](std::vector<std::int32_t> ids, const std::string& name) {
    check_prompt(ids, name, job, problems);
    job.entries.push_back({name, usual, {}});
    Request& request = job.entries.back().request;
    request.prompt_ids = std::move(ids);
    request.sampling.seed += job.entries.size() - 1;  // two equal prompts go different ways
  };
  const auto add_text = [&](const std::string& text, const std::string& name) {
    try {
      add(job.prompt_ids(text), name);
    } catch (const Error& e) {  // some vocabularies lack characters
      problems.push_back(fmt::format("{}: {}", name, e.what()));
    }
  };
  for (const std::string& text : engine.prompts)
    add_text(text, fmt::format("--prompt \"{}\"", text.substr(0, 40)));
  for (const std::string& text : engine.prompt_ids) {
    const std::size_t known = problems.size();
    std::vector<std::int32_t> ids = parse_ids(text, problems);
    if (problems.size() == known) add(std::move(ids), "--prompt-ids " + text.substr(0, 40));
  }
  if (engine.prompts.empty() && engine.prompt_ids.empty() && engine.prompt_file.empty())
    add_text(job.chat ? kBuiltInQuestion : kBuiltInPrompt, "the built-in prompt");
}

std::vector<PromptLine> read_prompt_file(const std::string& name) {
  if (name == "-") return read_prompt_lines(std::cin, "standard input");
  std::ifstream file(name);
  if (!file || std::filesystem::is_directory(name))
    throw input_error(fmt::format("--prompt-file {}: cannot be opened", name));
  return read_prompt_lines(file, name);
}

void add_prompt_file(const EngineOptions& engine, const Request& usual, Job& job) {
  if (engine.prompt_file.empty()) return;
  for (PromptLine& line : read_prompt_file(engine.prompt_file)) {
    job.entries.push_back({line.place, usual, line.error});
    if (!line.error.empty()) continue;
    Request& request = job.entries.back().request;
    try {
      request.prompt_ids = line.prompt ? job.prompt_ids(*line.prompt) : line.prompt_ids;
    } catch (const Error& e) {
      job.entries.back().error = e.what();
      continue;
    }
    request.max_new_tokens = line.max_tokens.value_or(usual.max_new_tokens);
    request.ignore_eos = line.ignore_eos.value_or(usual.ignore_eos);
    SamplingParams& sampling = request.sampling;
    if (line.top_k.value_or(0) > 0 || line.top_p.value_or(1) < 1)
      sampling.temperature = sampling.greedy() ? 1 : sampling.temperature;
    sampling.temperature = line.temperature.value_or(sampling.temperature);
    sampling.top_k = line.top_k.value_or(sampling.top_k);
    sampling.top_p = line.top_p.value_or(sampling.top_p);
    sampling.seed = line.seed ? static_cast<std::uint64_t>(*line.seed)
                              : usual.sampling.seed + job.entries.size() - 1;
  }
  if (job.entries.empty())
    throw input_error(fmt::format("--prompt-file {}: has no prompts", engine.prompt_file));
}

void read_limits(const EngineOptions& engine, Job& job, ProblemList& problems) {
  const std::int64_t longest = job.config.max_position_embeddings;
  SchedulerLimits& limits = job.limits;
  limits.max_model_len = engine.max_model_len.value_or(std::min(longest, kDefaultModelLen));
  if (limits.max_model_len > longest)
    problems.push_back(fmt::format("--max-model-len {}: must be 1 to max_position_embeddings={}",
                                   limits.max_model_len, longest));
  const std::int64_t usual = std::max(kDefaultBatchedTokens, engine.max_num_seqs.value_or(0));
  limits.max_num_batched_tokens = engine.max_num_batched_tokens.value_or(
      engine.chunked_prefill_size == 0 ? std::max(usual, limits.max_model_len) : usual);
  limits.max_num_seqs = engine.max_num_seqs.value_or(
      std::clamp<std::int64_t>(limits.max_num_batched_tokens, 1, kDefaultNumSeqs));
  limits.chunked_prefill_size = engine.chunked_prefill_size.value_or(
      std::max<std::int64_t>(0, limits.max_num_batched_tokens));
  for (const std::string& problem : limits.problems()) problems.push_back(problem);
  if (!problems.empty()) return;
  // More tokens than all sequences together can have would be memory for nothing.
  limits.max_num_batched_tokens =
      std::min(limits.max_num_batched_tokens, limits.max_num_seqs * limits.max_model_len);
  limits.chunked_prefill_size =
      std::min(limits.chunked_prefill_size, limits.max_num_batched_tokens);
}

// What each rank can spend on its KV cache. Empty, with a problem, if the machine cannot hold them.
std::vector<KvBudget> kv_budgets(const Options& options,
                                 const EngineOptions& engine,
                                 const Job& job,
                                 ProblemList& problems) {
  const std::int64_t blocks = engine.kv_blocks.value_or(
      job.limits.max_num_seqs * blocks_for(job.limits.max_model_len, engine.block_size));
  std::vector<KvBudget> budgets;
  double all_bytes = 0;
  for (int rank = 0; rank < options.tp; ++rank) {
    const DecoderShard shard = DecoderShard::of(job.config, rank, static_cast<int>(options.tp));
    const KvLayout layout{job.config.num_hidden_layers,
                          shard.heads.kv.size(),
                          job.config.head_dim,
                          engine.block_size,
                          0,
                          job.kv_dtype};
    const std::int64_t block_bytes = layout.bytes_per_block();
    const double bytes = engine.kv_memory_mib
                             ? std::ldexp(static_cast<double>(*engine.kv_memory_mib), 20)
                             : static_cast<double>(blocks) * static_cast<double>(block_bytes);
    if (options.device == "cpu") all_bytes += bytes;  // a GPU's memory is asked for on its rank
    if (all_bytes < machine_bytes()) budgets.push_back({std::llround(bytes), block_bytes});
  }
  if (all_bytes < machine_bytes()) return budgets;
  problems.push_back(fmt::format(
      "the KV caches of {} ranks need {:.1f} GiB, but this machine has {:.1f} GiB of memory; lower "
      "--max-num-seqs {} or --max-model-len {}, or set --kv-blocks or --kv-memory-mib",
      options.tp, std::ldexp(all_bytes, -30), std::ldexp(machine_bytes(), -30),
      job.limits.max_num_seqs, job.limits.max_model_len));
  return {};
}

void size_kv_cache(const Options& options,
                   const EngineOptions& engine,
                   Job& job,
                   ProblemList& problems) {
  constexpr std::int64_t kMaxSlots = std::numeric_limits<std::int32_t>::max();
  const auto within = [&](const char* option, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
      problems.push_back(fmt::format("{} {}: must be 1 to {}", option, value, most));
  };
  within("--block-size", engine.block_size, kMaxBlockSize);
  within("--kv-memory-mib", engine.kv_memory_mib.value_or(1), kMaxMemoryMib);
  within("--kv-blocks", engine.kv_blocks.value_or(1), kMaxSlots);
  if (engine.kv_blocks && engine.kv_memory_mib)
    problems.push_back("--kv-blocks and --kv-memory-mib: give one of them");
  if (!problems.empty()) return;  // no sizes can be worked out of these
  job.block_size = engine.block_size;
  job.kv_budgets = kv_budgets(options, engine, job, problems);
  if (!problems.empty()) return;
  job.pool = common_pool_size(job.kv_budgets);
  if (job.pool.num_blocks > kMaxSlots / job.block_size)
    problems.push_back(
        fmt::format("KV cache: {} blocks of {} tokens; it must have at most {} slots",
                    job.pool.num_blocks, job.block_size, kMaxSlots));
}

}  // namespace

void Job::set_accuracy(const Options& options, const Weights& weights) {
  const DType stored = store_as.value_or(weights.embedding().dtype);
  accuracy = Accuracy::of(options, stored, 1);
  if (accuracy.same_order) return;
  rounding = {size_of(stored) == 2, kv_dtype};
  // One device rounds as the ranks do. What is left are values next to the middle between two of
  // 16 bits, which another order of sums puts on the other side.
  if (accuracy.to_16_bits) accuracy.deviations = 2e-2;
}

std::vector<std::int32_t> Job::prompt_ids(const std::string& text) const {
  if (!chat) return tokenizer.encode(text, true);
  return tokenizer.encode(chat->prompt(text, system), false);  // it spells its special tokens
}

std::int64_t Job::max_cached_tokens() const {
  return std::min(limits.max_model_len, pool.num_blocks * block_size);
}

DecoderLimits Job::decoder_limits(bool all_logits) const {
  return {limits.max_model_len,
          limits.max_num_batched_tokens,
          all_logits ? limits.max_num_batched_tokens : limits.max_num_seqs,
          block_size,
          0,
          kv_dtype};
}

KvBudget kv_budget(const RankContext& ctx,
                   const Options& options,
                   const EngineOptions& engine,
                   const Job& job) {
  KvBudget budget = job.kv_budgets[static_cast<std::size_t>(ctx.rank)];
  if (options.device == "cpu") return budget;
  const std::int64_t free_bytes = ctx.device.free_bytes();
  const bool asked = engine.kv_blocks || engine.kv_memory_mib;
  if (asked && budget.bytes > free_bytes)
    throw input_error(fmt::format(
        "{}: the KV cache of rank {} needs {} bytes, but {} are left of its share of the GPU "
        "(--gpu-memory-utilization {}); ask for less, or use more ranks (--tp)",
        engine.kv_blocks ? fmt::format("--kv-blocks {}", *engine.kv_blocks)
                         : fmt::format("--kv-memory-mib {}", *engine.kv_memory_mib),
        ctx.rank, budget.bytes, free_bytes, options.gpu_memory_utilization));
  budget.bytes = std::min(budget.bytes, free_bytes);
  return budget;
}

Job Job::prepare(const Options& options, const EngineOptions& engine) {
  const std::filesystem::path folder =
      engine.model.empty() ? bundled_model() : without_last_slash(engine.model);
  if (!std::filesystem::is_directory(folder))
    throw input_error(
        fmt::format("--model {}: no such folder; it must hold config.json, tokenizer.json and "
                    "model.safetensors",
                    folder.string()));
  Job job{.folder = folder,
          .config = ModelConfig::load(folder),
          .tokenizer = Tokenizer::load(folder / "tokenizer.json")};
  if (!options.dtype.empty()) job.store_as = dtype_from_name(options.dtype);
  const DType weights = job.store_as.value_or(job.config.torch_dtype.value_or(DType::f32));
  if (!options.kv_dtype.empty())
    job.kv_dtype = dtype_from_name(options.kv_dtype);
  else if (options.device == "cuda")
    job.kv_dtype = weights;
  check_tp_size({job.config.num_attention_heads, job.config.num_key_value_heads,
                 job.config.intermediate_size},
                static_cast<int>(options.tp), options.uneven);

  if (!engine.chat.empty()) job.chat = ChatTemplate::choose(engine.chat, folder, job.tokenizer);
  if (!engine.system.empty()) job.system = engine.system;

  ProblemList problems;
  if (job.system && !job.chat)
    problems.push_back("--system: is a part of a chat; choose its template with --chat");
  if (engine.max_tokens < 1)
    problems.push_back(fmt::format("--max-tokens {}: must be 1 or more", engine.max_tokens));
  if (!engine.sampling.empty() && engine.sampling != "model")
    problems.push_back(fmt::format("--sampling {}: must be model", engine.sampling));
  if (engine.compare != "tokens" && engine.compare != "layers" && engine.compare != "none")
    problems.push_back(fmt::format("--compare {}: must be tokens, layers or none", engine.compare));
  if (engine.show_batch.value_or(1) < 1)
    problems.push_back(fmt::format("--show-batch {}: steps count from 1", *engine.show_batch));
  if (engine.explain_load && !options.fault.empty())
    problems.push_back(fmt::format(
        "--fault {} with --explain-load: nothing is computed that could go wrong", options.fault));
  const SamplingParams sampling = sampling_params(options, engine, folder);
  for (const std::string& problem : sampling.problems()) problems.push_back(problem);
  read_limits(engine, job, problems);
  size_kv_cache(options, engine, job, problems);
  if (job.pool.num_blocks > 0) {
    const Request usual{
        {}, engine.max_tokens, job.config.eos_token_ids, engine.ignore_eos, sampling};
    add_prompts(engine, usual, job, problems);
    add_prompt_file(engine, usual, job);
  }
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
  return job;
}

}  // namespace tp

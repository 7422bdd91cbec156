#include "requests.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

constexpr char kBuiltInPrompt[] = "It is a truth universally acknowledged, that";
// Without --max-model-len: enough for a demonstration, little enough for a laptop.
constexpr std::int64_t kDefaultContext = 4096;

using ProblemList = std::vector<std::string>;

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
  } else if (engine.top_k || engine.top_p) {
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
  if (ids.empty()) problems.push_back(fmt::format("{}: has no tokens; give at least one", name));
  if (count > job.max_context)
    problems.push_back(fmt::format("{}: {} tokens, but the KV cache holds {} (--max-model-len)",
                                   name, count, job.max_context));
  for (const std::int32_t id : ids)
    if (id < 0 || id >= job.config.vocab_size)
      problems.push_back(fmt::format("{}: token id {} is not in the vocabulary, 0 to {}", name, id,
                                     job.config.vocab_size - 1));
}

// The prompts of the command line, in token ids.
std::vector<std::vector<std::int32_t>> prompts_of(const EngineOptions& engine,
                                                  const Job& job,
                                                  ProblemList& problems) {
  std::vector<std::vector<std::int32_t>> prompts;
  const auto add = [&](std::vector<std::int32_t> ids, const std::string& name) {
    check_prompt(ids, name, job, problems);
    prompts.push_back(std::move(ids));
  };
  for (const std::string& text : engine.prompts)
    add(job.tokenizer.encode(text), fmt::format("--prompt \"{}\"", text.substr(0, 40)));
  for (const std::string& text : engine.prompt_ids) {
    const std::size_t known = problems.size();
    std::vector<std::int32_t> ids = parse_ids(text, problems);
    if (problems.size() == known) add(std::move(ids), "--prompt-ids " + text.substr(0, 40));
  }
  if (engine.prompts.empty() && engine.prompt_ids.empty())
    add(job.tokenizer.encode(kBuiltInPrompt), "the built-in prompt");
  return prompts;
}

}  // namespace

std::vector<ExtraOption> engine_flags(EngineOptions& engine) {
  return {{"--model", &engine.model,
           "Hugging Face model folder (default: the bundled models/austen-5m)"},
          {"--prompt", &engine.prompts, "text to go on with; may be repeated"},
          {"--prompt-ids", &engine.prompt_ids, "the same as token ids, 1,2,3; may be repeated"},
          {"--max-tokens", &engine.max_tokens, "new tokens per prompt"},
          {"--max-model-len", &engine.max_model_len,
           "tokens in the KV cache (default: what the model was trained for, at most 4096)"},
          {"--ignore-eos", &engine.ignore_eos, "go on after the end of the text"},
          {"--temperature", &engine.temperature, "0: always the most likely token (default)"},
          {"--top-k", &engine.top_k, "sample among the k most likely tokens; 0 or -1: off"},
          {"--top-p", &engine.top_p,
           "sample among the most likely tokens that reach this probability; 1: off"},
          {"--sampling", &engine.sampling,
           "model: take temperature, top-k and top-p from generation_config.json"},
          {"--compare", &engine.compare,
           "with one device: tokens, layers (every module of every layer) or none"}};
}

std::filesystem::path bundled_model() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  for (std::filesystem::path folder = program.parent_path();; folder = folder.parent_path()) {
    const std::filesystem::path model = folder / "models" / "austen-5m";
    if (std::filesystem::exists(model / "config.json")) return model;
    if (folder == folder.root_path()) break;
  }
  throw input_error(fmt::format(
      "models/austen-5m: not found beside or above {}; name a model folder with --model",
      program.string()));
}

Job Job::prepare(const Options& options, const EngineOptions& engine) {
  const std::filesystem::path folder =
      engine.model.empty() ? bundled_model() : std::filesystem::path(engine.model);
  if (!std::filesystem::is_directory(folder))
    throw input_error(
        fmt::format("--model {}: no such folder; it must hold config.json, tokenizer.json and "
                    "model.safetensors",
                    folder.string()));
  Job job{folder, ModelConfig::load(folder), Tokenizer::load(folder / "tokenizer.json"), {}, 0, {}};
  if (!options.dtype.empty()) job.store_as = dtype_from_name(options.dtype);
  check_tp_size({job.config.num_attention_heads, job.config.num_key_value_heads,
                 job.config.intermediate_size},
                static_cast<int>(options.tp), options.uneven);

  ProblemList problems;
  const std::int64_t longest = job.config.max_position_embeddings;
  job.max_context = engine.max_model_len.value_or(std::min(longest, kDefaultContext));
  if (job.max_context < 1 || job.max_context > longest)
    problems.push_back(fmt::format("--max-model-len {}: must be 1 to max_position_embeddings={}",
                                   job.max_context, longest));
  if (engine.max_tokens < 1)
    problems.push_back(fmt::format("--max-tokens {}: must be 1 or more", engine.max_tokens));
  if (!engine.sampling.empty() && engine.sampling != "model")
    problems.push_back(fmt::format("--sampling {}: must be model", engine.sampling));
  if (engine.compare != "tokens" && engine.compare != "layers" && engine.compare != "none")
    problems.push_back(fmt::format("--compare {}: must be tokens, layers or none", engine.compare));
  const SamplingParams sampling = sampling_params(options, engine, folder);
  for (const std::string& problem : sampling.problems()) problems.push_back(problem);
  for (std::vector<std::int32_t>& ids : prompts_of(engine, job, problems)) {
    Request request{std::move(ids), engine.max_tokens, job.config.eos_token_ids, engine.ignore_eos,
                    sampling};
    request.sampling.seed += job.requests.size();  // two equal prompts go different ways
    job.requests.push_back(std::move(request));
  }
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
  return job;
}

}  // namespace tp

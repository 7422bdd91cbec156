#include "job.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/model/bundled.h"
#include "common/plan/cards.h"

namespace tp {

namespace {

constexpr std::int64_t kDefaultModelLen = 8192, kDefaultConcurrency = 16;
constexpr std::int64_t kVerifyModelLen = 72, kVerifyConcurrency = 4;
constexpr std::int64_t kMostTokens = 1 << 24, kMostRequests = 1 << 24, kMostGroup = 1 << 20;
constexpr std::int64_t kMostOverheadMib = 1 << 20, kMostBlock = 1 << 20;
constexpr std::int64_t kContextMib = 500, kCommunicationMib = 300, kActivationsMib = 1024;
constexpr double kMostGib = 1 << 20;

using ProblemList = std::vector<std::string>;

std::vector<ModelConfig::Key> given_keys(const PlanOptions& plan) {
  std::vector<ModelConfig::Key> keys;
  const auto add = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) keys.emplace_back(key, *value);
  };
  add("hidden_size", plan.hidden_size);
  add("intermediate_size", plan.intermediate_size);
  add("num_hidden_layers", plan.num_hidden_layers);
  add("num_attention_heads", plan.num_attention_heads);
  add("num_key_value_heads", plan.num_key_value_heads);
  add("head_dim", plan.head_dim);
  add("vocab_size", plan.vocab_size);
  add("max_position_embeddings", plan.max_position_embeddings);
  if (!plan.model_type.empty()) keys.emplace_back("model_type", plan.model_type);
  if (plan.tie_word_embeddings) keys.emplace_back("tie_word_embeddings", true);
  return keys;
}

// From a file, from sizes alone, or from a file with sizes in place of its own.
void read_model(const PlanOptions& plan, PlanJob& job) {
  std::vector<ModelConfig::Key> keys = given_keys(plan);
  if (plan.model.empty() && !keys.empty() && !plan.verify) {
    if (plan.model_type.empty()) keys.emplace_back("model_type", std::string("llama"));
    if (!plan.max_position_embeddings)  // nothing is known of a limit
      keys.emplace_back("max_position_embeddings", kMostTokens);
    job.model = "of the given sizes";
    job.input.config = ModelConfig::for_plan(std::nullopt, keys);
    return;
  }
  std::filesystem::path path = plan.model;
  if (path.empty()) path = bundled_model(plan.verify ? "austen-5m" : "shapes/llama-3-70b");
  const bool is_folder = std::filesystem::is_directory(path);
  const std::filesystem::path file = is_folder ? path / "config.json" : path;
  if (!std::filesystem::exists(file))
    throw input_error(
        fmt::format("--model {}: must be a config.json or a folder with one", path.string()));
  job.folder = std::filesystem::absolute(file).lexically_normal().parent_path();
  const bool usual_name = file.filename() == "config.json";
  if (plan.verify && !usual_name)
    throw input_error(
        fmt::format("--model {} with --verify: must be a model folder or the config.json in it",
                    path.string()));
  job.model = (usual_name ? job.folder.filename() : file.stem()).string();
  job.input.config = ModelConfig::for_plan(file, keys);
}

// "float16" is f16; without a word the weights are taken for bf16.
std::string stored_dtype(const ModelConfig& config) {
  return std::string(name_of(config.torch_dtype.value_or(DType::bf16)));
}

void read_formats(const Options& options,
                  const PlanOptions& plan,
                  PlanJob& job,
                  ProblemList& problems) {
  PlanInput& input = job.input;
  if (options.dtype.empty() && input.config.quantized)
    problems.push_back(
        "quantization_config: the weights are quantized; say with --dtype fp8, int8 or int4, and "
        "--quant-group, as what they are to be planned");
  std::string dtype = options.dtype.empty() ? stored_dtype(input.config) : options.dtype;
  if (plan.verify && options.dtype.empty() && dtype == "f16") dtype = "f32";  // as the device does
  input.weights.format = number_format(dtype);
  if (plan.quant_group && !input.weights.format.quantized)
    problems.push_back(
        fmt::format("--quant-group {}: belongs to --dtype fp8, int8 or int4", *plan.quant_group));
  input.weights.group = plan.quant_group.value_or(input.weights.group);
  std::string kv = input.weights.format.quantized ? "bf16" : dtype;
  if (plan.verify) kv = "f32";
  input.kv = number_format(options.kv_dtype.empty() ? kv : options.kv_dtype);
}

void read_card(const Options& options,
               const PlanOptions& plan,
               PlanJob& job,
               ProblemList& problems) {
  if (plan.card_memory_gib) {
    if (!plan.card.empty())
      problems.push_back(fmt::format("--card {} and --card-memory-gib {}: give one of them",
                                     plan.card, *plan.card_memory_gib));
    const double gib = *plan.card_memory_gib;
    if (!(gib > 0) || gib > kMostGib)
      problems.push_back(
          fmt::format("--card-memory-gib {}: must be above 0 and at most {}", gib, kMostGib));
    else
      job.input.card_bytes = std::llround(std::ldexp(gib, 30));
    job.card = "of the given memory";
  } else {
    job.card = plan.card.empty() ? "a100-80g" : plan.card;
    try {
      const Card& card = card_named(job.card);
      job.input.card_bytes = card.memory_bytes();
      job.ecc_takes_memory = card.ecc_takes_memory;
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  job.input.utilization_ppm = std::llround(options.gpu_memory_utilization * 1e6);
}

void read_numbers(const Options& options,
                  const PlanOptions& plan,
                  PlanJob& job,
                  ProblemList& problems) {
  const auto within = [&](const char* option, std::int64_t value, std::int64_t least,
                          std::int64_t most) {
    if (value < least || value > most)
      problems.push_back(fmt::format("{} {}: must be {} to {}", option, value, least, most));
  };
  PlanInput& input = job.input;
  input.uneven = options.uneven;
  input.block_size = plan.block_size;
  const std::int64_t longest = input.config.max_position_embeddings;
  input.max_model_len = plan.max_model_len.value_or(
      std::min(longest, plan.verify ? kVerifyModelLen : kDefaultModelLen));
  input.concurrency =
      plan.concurrency.value_or(plan.verify ? kVerifyConcurrency : kDefaultConcurrency);
  within("--block-size", plan.block_size, 1, kMostBlock);
  within("--concurrency", input.concurrency, 1, kMostRequests);
  if (input.weights.format.quantized) within("--quant-group", input.weights.group, 1, kMostGroup);
  const auto overhead_bytes = [&](const char* option, const std::optional<std::int64_t>& given,
                                  std::int64_t usual_mib) {
    const std::int64_t mib = given.value_or(usual_mib);
    within(option, mib, 0, kMostOverheadMib);
    return std::clamp<std::int64_t>(mib, 0, kMostOverheadMib) << 20;
  };
  input.overhead.context_bytes = overhead_bytes("--context-mib", plan.context_mib, kContextMib);
  input.overhead.communication_bytes =
      overhead_bytes("--communication-mib", plan.communication_mib, kCommunicationMib);
  input.overhead.activation_bytes =
      overhead_bytes("--activations-mib", plan.activations_mib, kActivationsMib);
  within("--cards", plan.cards.value_or(1), 1, kMostCards);
  within("--pp", plan.pp.value_or(1), 1, kMostCards);
  if (input.max_model_len < 1 || input.max_model_len > longest)
    problems.push_back(fmt::format("--max-model-len {}: must be 1 to max_position_embeddings={}",
                                   input.max_model_len, longest));
}

// The engine of this project has no stages and computes with few formats.
void check_verify(const Options& options,
                  const PlanOptions& plan,
                  PlanJob& job,
                  ProblemList& problems) {
  if (!plan.verify) return;
  const PlanInput& input = job.input;
  const auto refuse = [&](const char* option, bool given) {
    if (given) problems.push_back(fmt::format("{}: --verify plans for this machine", option));
  };
  refuse("--card", !plan.card.empty());
  refuse("--card-memory-gib", plan.card_memory_gib.has_value());
  refuse("--context-mib", plan.context_mib.has_value());
  refuse("--communication-mib", plan.communication_mib.has_value());
  refuse("--activations-mib", plan.activations_mib.has_value());
  refuse("--gpu-memory-utilization",
         options.gpu_memory_utilization != Options().gpu_memory_utilization);
  if (options.device == "cuda")
    problems.push_back(
        "--device cuda with --verify: planned is the workspace of the CPU's engine, another than a "
        "GPU's; use --device cpu");
  if (plan.articles)
    problems.push_back("--articles: --verify shows none of them; run it without --verify");
  if (plan.pp.value_or(1) > 1)
    problems.push_back(fmt::format("--pp {} with --verify: stages are planned, not run", *plan.pp));
  if (input.weights.format.name != "f32" && input.weights.format.name != "bf16")
    problems.push_back(
        fmt::format("--dtype {} with --verify: must be f32 or bf16, which the CPU computes with",
                    input.weights.format.name));
  if (input.kv.name != "f32")
    problems.push_back(fmt::format("--kv-dtype {} with --verify: must be f32", options.kv_dtype));
  if (!given_keys(plan).empty())
    problems.push_back("--verify: needs a model with weights, whose sizes cannot be changed");
}

// Refuses the tp that was asked for, with all reasons.
void check_given_tp(int tp_size, const PlanInput& input, int pp_size) {
  const std::vector<std::string> reasons = layout_problems(input, tp_size, pp_size);
  if (reasons.empty()) return;
  const LayoutPlan refused = plan_layout(input, tp_size, pp_size);
  std::string text = fmt::format("--tp {}{} cannot split this model:\n  {}", tp_size,
                                 pp_size > 1 ? fmt::format(" with --pp {}", pp_size) : "",
                                 fmt::join(reasons, "\n  "));
  for (const std::string& note : refused.notes) text += "\n  (no obstacle: " + note + ")";
  std::vector<int> usable;  // on as many stages
  for (int size = 1; size <= kMostCards; ++size)
    if (layout_problems(input, size, pp_size).empty()) usable.push_back(size);
  if (usable.empty())
    text += pp_size > 1 ? fmt::format("\nno tp is usable with --pp {}", pp_size)
                        : std::string("\nno tp is usable");
  else
    text += fmt::format("\nusable sizes: {}", fmt::join(usable, ", "));
  PlanInput uneven = input;
  uneven.uneven = true;
  if (!input.uneven && layout_problems(uneven, tp_size, pp_size).empty())
    text += "; or add --uneven to split unevenly";
  throw input_error(text);
}

std::vector<LayoutSize> sizes_on_machine(int cards, std::optional<int> pp, const PlanInput& input) {
  std::vector<LayoutSize> sizes;
  for (int pp_size = pp.value_or(1); pp_size <= pp.value_or(cards); ++pp_size)
    for (int tp_size = 1; tp_size * pp_size <= cards; ++tp_size)
      // Why a tp cannot be is the same on any number of stages, and said once.
      if (pp || pp_size == 1 || layout_problems(input, tp_size, pp_size).empty())
        sizes.push_back({tp_size, pp_size});
  return sizes;
}

void choose_sizes(const Options& options, const PlanOptions& plan, PlanJob& job) {
  const PlanInput& input = job.input;
  const auto tp_size = static_cast<int>(options.tp);
  std::optional<int> cards, pp;
  if (plan.cards) cards = job.cards_there = static_cast<int>(*plan.cards);
  if (plan.pp) pp = static_cast<int>(*plan.pp);
  if (cards && (options.tp_given ? tp_size : 1) * pp.value_or(1) > *cards)
    throw input_error(fmt::format("--cards {}: fewer than --tp {} times --pp {}", *cards,
                                  options.tp_given ? tp_size : 1, pp.value_or(1)));
  if (options.tp_given) {
    check_given_tp(tp_size, input, pp.value_or(1));
    const int most = cards && !pp ? *cards / tp_size : pp.value_or(1);
    for (int pp_size = pp.value_or(1); pp_size <= most; ++pp_size)
      job.sizes.push_back({tp_size, pp_size});
  } else if (cards && !plan.verify) {
    job.sizes = sizes_on_machine(*cards, pp, input);
  } else {
    constexpr int kMostVerified = 8;  // ranks that share this machine's cores
    const int most =
        plan.verify ? std::min(cards.value_or(kMostVerified), kMostVerified) : kMostCards;
    job.all_usable = true;
    for (int size = 1; size <= most; ++size)
      if (layout_problems(input, size, pp.value_or(1)).empty())
        job.sizes.push_back({size, pp.value_or(1)});
    if (job.sizes.empty()) check_given_tp(1, input, pp.value_or(1));
  }
}

}  // namespace

PlanJob PlanJob::prepare(const Options& options, const PlanOptions& plan) {
  PlanJob job;
  read_model(plan, job);
  job.lesson = plan.articles || (plan.model.empty() && given_keys(plan).empty());
  ProblemList problems;
  read_formats(options, plan, job, problems);
  read_card(options, plan, job, problems);
  read_numbers(options, plan, job, problems);
  check_verify(options, plan, job, problems);
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
  choose_sizes(options, plan, job);
  return job;
}

}  // namespace tp

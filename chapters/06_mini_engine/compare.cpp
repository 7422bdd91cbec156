#include "compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/engine/generate.h"
#include "common/model/one_device_decoder.h"
#include "common/parallel/compare_ranks.h"

namespace tp {

namespace {

// Ranks that hold whole sum blocks add in the order of one device. Others may differ by what a
// plain f32 program differs from another one (notes/numerics.md).
Tolerance tolerance_for(const Accuracy& accuracy, int tp_size, ConstTensorView reference) {
  return accuracy.row_parallel(tp_size, Tolerance::of_deviation(2e-5, reference), reference);
}

std::string first_difference(const std::vector<std::int32_t>& ids,
                             const std::vector<std::int32_t>& reference) {
  const auto [a, b] = std::mismatch(ids.begin(), ids.end(), reference.begin(), reference.end());
  if (a == ids.end() && b == reference.end()) return "equal";
  return fmt::format("differ from new token {} on", a - ids.begin());
}

// The worst of the comparisons step by step.
Comparison compare_logits(const Job& job,
                          const std::string& name,
                          int tp_size,
                          const std::vector<Tensor>& logits,
                          const std::vector<Tensor>& reference) {
  Comparison worst;
  for (std::size_t i = 0; i < std::min(logits.size(), reference.size()); ++i) {
    Comparison here =
        compare(name, logits[i], reference[i], tolerance_for(job.accuracy, tp_size, reference[i]));
    here.place = fmt::format("step {} {}", i, here.place);
    const bool worse = !here.passed || here.max_difference > worst.max_difference;
    if (i == 0 || (worst.passed && worse)) worst = here;
  }
  return worst;
}

// The columns of a module's whole output that each rank computes.
std::vector<Range> columns_of(const std::string& name,
                              const ModelConfig& config,
                              int tp_size,
                              std::int64_t all) {
  std::vector<Range> columns;
  for (int rank = 0; rank < tp_size; ++rank) {
    const HeadShard shard =
        head_shard(config.num_attention_heads, config.num_key_value_heads, rank, tp_size);
    const bool of_query = name.ends_with(" q") || name.ends_with(" attention");
    const bool of_kv = name.ends_with(" k") || name.ends_with(" v");
    const Range heads = of_query ? shard.query : shard.kv;
    columns.push_back(of_query || of_kv ? heads.times(config.head_dim) : Range{0, all});
  }
  return columns;
}

}  // namespace

void expect_no_errors(Report& report, const Job& job, const std::vector<Completion>& completions) {
  for (std::size_t i = 0; i < completions.size(); ++i)
    if (completions[i].reason == FinishReason::error)
      report.expect(fmt::format("prompt {} ({})", i, job.entries[i].name), "error", "a text");
}

namespace {

// One device's logits of the steps in which these ids were chosen, whatever it would have chosen.
Completion follow_ids(const Model& model,
                      const Request& request,
                      const std::vector<std::int32_t>& ids,
                      std::int64_t kept_logit_bytes) {
  Completion done;
  done.ids = ids;
  auto position = static_cast<std::int64_t>(request.prompt_ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const ConstTensorView logits =
        i == 0 ? model(request.prompt_ids, 0) : model(std::span(&ids[i - 1], 1), position++);
    if (logits.bytes() > kept_logit_bytes) break;
    kept_logit_bytes -= logits.bytes();
    done.logits.push_back(Tensor::on_host(logits.shape));
    copy_host(logits, done.logits.back());
  }
  return done;
}

// Whether each id could be the best one if the reference's logits were off by what is allowed.
std::string judge_choices(const Job& job, const Completion& found, const Completion& reference) {
  for (std::size_t i = 0; i < reference.logits.size(); ++i) {
    const ConstTensorView logits = reference.logits[i];
    const float* const row = logits.row<float>(0);
    const float best = *std::max_element(row, row + logits.row_elements());
    const double bound = job.accuracy.same_steps(logits).bound;
    if (!(row[found.ids[i]] >= best - 2 * bound))
      return fmt::format("new token {} is no candidate", i);
  }
  return "candidates";
}

}  // namespace

void compare_tokens(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    const std::vector<Completion>& completions) {
  // With rounded activations the best of two nearly equal tokens may be the other one, and the texts
  // part. Then one device follows the ranks' tokens, and each of them must be a good one.
  const bool follows = job.accuracy.to_16_bits;
  struct Outcome {
    std::string name, found, wanted;
  };
  std::int64_t cut_short = 0;
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    const Completion& found = completions[i];
    if (found.reason == FinishReason::error) continue;
    const Request& request = job.entries[i].request;
    OneDeviceDecoder decoder(job.config, weights, job.max_cached_tokens(), job.rounding);
    Tensor logits;
    const Model one_device = [&](std::span<const std::int32_t> tokens, std::int64_t first) {
      logits = decoder.forward(tokens, first, 1);
      return logits.view();
    };
    const Completion reference =
        follows ? follow_ids(one_device, request, found.ids, kKeptLogitBytes)
                : generate(one_device, request, job.max_cached_tokens(), kKeptLogitBytes);
    const std::size_t kept = std::min(found.logits.size(), reference.logits.size()),
                      steps = std::min(found.ids.size(), reference.ids.size());
    if (kept < steps) ++cut_short;
    if (kept > 0)
      report.check(compare_logits(
          job,
          kept < steps ? fmt::format("prompt {}, logits of {} of {} steps", i, kept, steps)
                       : fmt::format("prompt {}, logits of {} steps", i, steps),
          tp_size, found.logits, reference.logits));
    if (!follows)
      outcomes.push_back({fmt::format("prompt {}, {} token ids", i, reference.ids.size()),
                          first_difference(found.ids, reference.ids), "equal"});
    else if (request.sampling.greedy())
      outcomes.push_back({fmt::format("prompt {}, {} token ids, given rounding", i, kept),
                          judge_choices(job, found, reference), "candidates"});
  }
  if (cut_short > 0)
    report.line(fmt::format("  of {} prompts not all logits are compared: {} MiB of them are kept",
                            cut_short, kKeptLogitBytes >> 20));
  for (const Outcome& outcome : outcomes)
    report.expect(outcome.name, outcome.found, outcome.wanted);
}

void compare_layers(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    const Inspection& inspection,
                    const std::vector<RankOutput>& ranks) {
  report.line(
      fmt::format("module by module: {} of {} tokens of prompt {} and its text, alone in one step",
                  inspection.ids.size(), inspection.all_tokens, inspection.entry));
  OneDeviceDecoder decoder(job.config, weights, job.max_cached_tokens(), job.rounding);
  std::string first;
  Accuracy modules = job.accuracy;
  // A value that falls to the other side of a rounding jumps by 2^-7 of itself; of a module's
  // outputs, which are not yet sums of many such values, one of 5 deviations may be such a one.
  if (modules.to_16_bits) modules.deviations = 5 * 0x1p-7;
  const Tap compare_module = [&](const std::string& name, ConstTensorView whole) {
    const std::vector<Range> columns = columns_of(name, job.config, tp_size, whole.row_elements());
    const Tolerance tolerance =
        tolerance_for(name == "logits" ? job.accuracy : modules, tp_size, whole);
    // The logits are gathered to rank 0 only.
    const Comparison worst =
        name == "logits" ? compare(name, ranks[0].tensor(name), whole, tolerance)
                         : compare_column_shards(name, ranks, name, whole, columns, tolerance);
    if (!worst.passed && first.empty()) first = fmt::format("{}, {}", name, worst.place);
    report.check(worst);
  };
  decoder.forward(inspection.ids, 0, std::ssize(inspection.ids), compare_module);
  report.line(first.empty() ? "  no difference in any module" : "  first difference: " + first);
}

}  // namespace tp

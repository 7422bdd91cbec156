#include "compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/device/sum_blocks.h"

namespace tp {

namespace {

// Ranks that hold whole sum blocks add in the order of one device. Others may differ by what a
// plain f32 program differs from another one (notes/numerics.md).
Tolerance tolerance_for(int tp_size, ConstTensorView reference) {
  return kSumBlocks % tp_size == 0 ? Tolerance::exact() : Tolerance::of_deviation(2e-5, reference);
}

std::string first_difference(const std::vector<std::int32_t>& ids,
                             const std::vector<std::int32_t>& reference) {
  const auto [a, b] = std::mismatch(ids.begin(), ids.end(), reference.begin(), reference.end());
  if (a == ids.end() && b == reference.end()) return "equal";
  return fmt::format("differ from new token {} on", a - ids.begin());
}

// The worst of the comparisons step by step.
Comparison compare_logits(const std::string& name,
                          int tp_size,
                          const std::vector<Tensor>& logits,
                          const std::vector<Tensor>& reference) {
  Comparison worst;
  for (std::size_t i = 0; i < std::min(logits.size(), reference.size()); ++i) {
    Comparison here = compare(name, logits[i], reference[i], tolerance_for(tp_size, reference[i]));
    here.place = fmt::format("step {} {}", i, here.place);
    const bool worse = !here.passed || here.max_difference > worst.max_difference;
    if (i == 0 || (worst.passed && worse)) worst = here;
  }
  return worst;
}

// The columns of a module's whole output that a rank computes.
Range columns_of(const std::string& name,
                 const HeadShard& heads,
                 const ModelConfig& config,
                 std::int64_t all) {
  const auto features = [&](Range range) {
    return Range{range.begin * config.head_dim, range.end * config.head_dim};
  };
  if (name.ends_with(" q") || name.ends_with(" attention")) return features(heads.query);
  if (name.ends_with(" k") || name.ends_with(" v")) return features(heads.kv);
  return {0, all};
}

}  // namespace

void compare_tokens(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    const std::vector<Completion>& completions) {
  for (std::size_t i = 0; i < completions.size(); ++i) {
    OneDeviceDecoder decoder(job.config, weights, job.max_context);
    Tensor logits;
    const Model one_device = [&](const Step& step) -> ConstTensorView {
      logits = decoder.forward(step.ids, step.first_position, step.logit_rows);
      return logits;
    };
    const Completion reference =
        generate(one_device, job.requests[i], job.max_context, kMaxChunkTokens, kKeptLogitBytes);
    const std::string name = fmt::format("prompt {}", i);
    report.check(
        compare_logits(fmt::format("{}, logits of {} steps", name, reference.logits.size()),
                       tp_size, completions[i].logits, reference.logits));
    report.expect(fmt::format("{}, {} token ids", name, reference.ids.size()),
                  first_difference(completions[i].ids, reference.ids), "equal");
  }
}

void compare_layers(Report& report,
                    const Job& job,
                    const Weights& weights,
                    int tp_size,
                    std::span<const std::int32_t> ids,
                    const std::vector<RankOutput>& ranks) {
  OneDeviceDecoder decoder(job.config, weights, job.max_context);
  std::string first;
  const Tap compare_module = [&](const std::string& name, ConstTensorView whole) {
    Comparison worst;
    for (int rank = 0; rank < tp_size; ++rank) {
      if (name == "logits" && rank > 0) break;  // gathered to rank 0 only
      const HeadShard heads =
          head_shard(job.config.num_attention_heads, job.config.num_key_value_heads, rank, tp_size);
      const ConstTensorView part =
          whole.columns_in(columns_of(name, heads, job.config, whole.row_elements()));
      Comparison here = compare(name, ranks[static_cast<std::size_t>(rank)].tensor(name), part,
                                tolerance_for(tp_size, whole));
      here.place = fmt::format("rank {} {}", rank, here.place);
      here.shape = whole.shape.to_string();
      if (!here.passed && first.empty()) first = fmt::format("{}, rank {}", name, rank);
      const bool worse = !here.passed || here.max_difference > worst.max_difference;
      if (rank == 0 || (worst.passed && worse)) worst = here;
    }
    report.check(worst);
  };
  decoder.forward(ids, 0, static_cast<std::int64_t>(ids.size()), compare_module);
  report.line(first.empty() ? "  no difference in any module" : "  first difference: " + first);
}

}  // namespace tp

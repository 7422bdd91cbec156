// Golden files: what Hugging Face transformers answers for a model, and running the model beside them.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/core/compare.h"
#include "common/model/json.h"
#include "common/model/safetensors.h"
#include "tests/catch.h"
#include "tests/engine/run_engine.h"

namespace tp {

// The published bound: a plain f32 program reaches 4e-6 of the golden tensor's standard deviation.
inline constexpr double kGoldenBound = 2e-5;

struct Golden {
  nlohmann::json json;
  Safetensors tensors;

  // golden.json and golden.safetensors in this folder.
  explicit Golden(const std::filesystem::path& folder)
      : json(read_json(folder / "golden.json")),
        tensors(Safetensors::open(folder / "golden.safetensors")) {}

  std::size_t prompts() const { return json.at("prompts").size(); }
  std::vector<std::int32_t> ids(std::size_t prompt, const char* what) const {
    return json.at("prompts").at(prompt).at(what).get<std::vector<std::int32_t>>();
  }
  // A quarter of what the least of the mistakes that were tried changes a logit by.
  double quarter_of_least_mistake() const {
    double least = INFINITY;
    if (json.contains("largest_logit_change_if"))
      for (const auto& [mistake, change] : json["largest_logit_change_if"].items())
        least = std::min(least, change.get<double>());
    return least / 4;
  }

  // Fails unless the result is within the golden bound of the golden tensor (or its last row).
  void check(const std::string& name,
             ConstTensorView result,
             const std::string& golden_name) const {
    ConstTensorView golden = tensors.tensor(golden_name);
    if (golden.shape.dims() == 1)
      golden = {golden.data, {1, golden.shape[0]}, golden.dtype, golden.place, golden.shape[0]};
    Tolerance tolerance = Tolerance::of_deviation(kGoldenBound, golden);
    tolerance.bound = std::min(tolerance.bound, quarter_of_least_mistake());
    const Comparison c = compare(name, result, golden, tolerance);
    INFO(c.name << " differs by " << c.max_difference << ", allowed " << c.tolerance.bound << " at "
                << c.place);
    CHECK(c.passed);
    CHECK(c.tolerance.bound > 0);
  }
};

// The order of the blocks of one sequence in a pool: scattered if there are many.
inline std::vector<std::int32_t> block_table_of(const DecoderLimits& limits) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(limits.num_blocks));
  std::iota(table.rbegin(), table.rend(), 0);
  return table;
}

// Runs the tokens ids[begin], ... of the only sequence, and makes the logits of all of them.
inline void run_rows(const RankContext& ctx,
                     Decoder& decoder,
                     const std::vector<std::int32_t>& ids,
                     std::int64_t begin,
                     std::int64_t rows,
                     const Tap& tap = {}) {
  const std::vector<std::int32_t> table = block_table_of(decoder.limits());
  Batch batch(decoder.limits().block_size);
  batch.add(table, begin, rows);
  std::vector<std::int32_t> all_rows(static_cast<std::size_t>(rows));
  std::iota(all_rows.begin(), all_rows.end(), 0);
  const auto tokens =
      std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
  decoder.forward(ctx, {tokens, batch.view(), all_rows}, tap);
}

// Every module's output of the last chunk, on each of tp_size ranks. Without a block size the cache
// is contiguous.
inline std::vector<RankOutput> run_with_tap(const Loaded& model,
                                            int tp_size,
                                            const std::vector<std::int32_t>& ids,
                                            std::int64_t chunk,
                                            std::int64_t block_size = 0) {
  const std::int64_t count = std::ssize(ids);
  const DecoderLimits limits = block_size == 0 ? DecoderLimits::contiguous(count, chunk, chunk)
                                               : DecoderLimits{count, chunk, chunk, block_size,
                                                               blocks_for(count, block_size)};
  return run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    Decoder decoder(ctx, model.config, model.weights,
                    DecoderShard::of(model.config, ctx.rank, tp_size), limits);
    const Tap keep = [&](const std::string& name, ConstTensorView output) {
      out.keep(name, output);
    };
    for (std::int64_t begin = 0; begin < count; begin += chunk)
      run_rows(ctx, decoder, ids, begin, std::min(chunk, count - begin), keep);
  });
}

}  // namespace tp

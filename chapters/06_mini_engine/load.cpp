#include "load.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/model/load_plan.h"
#include "common/model/load_watch.h"
#include "common/parallel/run_ranks.h"

namespace tp {

namespace {

// The part of a tensor's name that a section stands for, "model.layers.0.".
std::string section_of(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return "";
  return name.substr(0, name.find('.', kLayers.size()) + 1);
}

const char* name_of(SplitAxis axis) {
  return axis == SplitAxis::rows ? "rows" : axis == SplitAxis::columns ? "columns" : "none";
}

// "0-3", or "0 2" with a gap.
std::string cell_of_ranks(const std::vector<std::int64_t>& ranks) {
  const Range all{ranks.front(), ranks.back() + 1};
  return all.size() == std::ssize(ranks) ? cell_of(all) : fmt::format("{}", fmt::join(ranks, " "));
}

// One line for each different shard, with the ranks that hold it.
void add_rows(const PlannedTensor& tensor, std::size_t name_begin, bool show_file, Table& table) {
  const auto& shards = tensor.shards;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const PlannedShard& shard = shards[rank];
    const auto same = [&](const PlannedShard& other) {
      return other.pieces == shard.pieces && other.local == shard.local;
    };
    if (std::any_of(shards.begin(), shards.begin() + static_cast<std::ptrdiff_t>(rank), same))
      continue;  // its line is there
    std::vector<std::int64_t> holders;
    for (std::size_t r = rank; r < shards.size(); ++r)
      if (same(shards[r])) holders.push_back(static_cast<std::int64_t>(r));
    const BytePieces& pieces = shard.pieces;
    table.rows.push_back({tensor.name.substr(name_begin), tensor.shape.to_string(),
                          std::string(name_of(tensor.dtype)), name_of(tensor.axis),
                          cell_of_ranks(holders), shard.local.to_string(),
                          std::to_string(pieces.first), std::to_string(pieces.bytes),
                          std::to_string(pieces.count), std::to_string(pieces.stride)});
    if (show_file) table.rows.back().push_back(std::to_string(tensor.file + 1));
  }
}

// The tensors [begin, end) of the plan, which are of one section.
void show_section(Report& report, const LoadPlan& plan, Range tensors, bool show_file) {
  const auto at = [&](std::int64_t i) -> const PlannedTensor& {
    return plan.tensors[static_cast<std::size_t>(i)];
  };
  const std::string section = section_of(at(tensors.begin).name);
  const char* const outside =
      tensors.begin == 0 ? "Atlas, before the layers" : "Atlas, behind the layers";
  Table table{section.empty() ? outside : "Atlas, " + section + "*",
              {"tensor", "whole", "dtype", "split", "ranks", "local", "first byte", "bytes",
               "times", "every"},
              {}};
  if (show_file) table.header.emplace_back("file");
  for (std::int64_t i = tensors.begin; i < tensors.end; ++i)
    add_rows(at(i), section.size(), show_file, table);
  report.section(table.name);
  report.table(table);
}

void show_atlas(Report& report, const LoadPlan& plan, const Weights& weights) {
  const auto& files = weights.files().files();
  report.section("Atlas: which bytes of the files each rank reads");
  report.line("Each line is a shard of a tensor, and the ranks that hold it.");
  report.line("Rows lie in one piece: from this first byte of the file, so many bytes, 1 time.");
  report.line("Columns have a piece in every row: so many times, one every so many bytes.");
  for (std::size_t i = 0; i < files.size(); ++i)
    report.line(fmt::format("file {}: {}, {} bytes", i + 1, files[i].path().filename().string(),
                            files[i].bytes().size()));
  const std::int64_t count = std::ssize(plan.tensors);
  const auto section_at = [&](std::int64_t i) {
    return section_of(plan.tensors[static_cast<std::size_t>(i)].name);
  };
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && section_at(end) == section_at(begin)) ++end;
    show_section(report, plan, {begin, end}, files.size() > 1);
  }
}

}  // namespace

Decoder load_decoder(const RankContext& ctx,
                     const Job& job,
                     const Weights& weights,
                     const DecoderShard& shard,
                     const DecoderLimits& limits,
                     Report& report) {
  const bool first = ctx.rank == 0;
  LoadProgress progress = LoadProgress::on_terminal(
      first ? LoadPlan::of(weights, job.config, ctx.tp_size).bytes(ctx.rank) : 0);
  const LoadWatch watch(ctx.device, weights, first ? &progress : nullptr);
  Decoder decoder(ctx, job.config, weights, shard, limits);
  progress.finish();
  const std::vector<std::string> notes = watch.notes(ctx);
  if (first)
    for (const std::string& note : notes) report.line("note: " + note);
  return decoder;
}

void explain_load(const Job& job, const Options& options, const Weights& weights, Report& report) {
  const auto tp_size = static_cast<int>(options.tp);
  const LoadPlan plan = LoadPlan::of(weights, job.config, tp_size);
  show_atlas(report, plan, weights);

  report.section("Loading");
  const auto ranks = run_ranks(Launch::from(options), [&](RankContext& ctx, RankOutput&) {
    load_decoder(ctx, job, weights, DecoderShard::of(job.config, ctx.rank, tp_size),
                 DecoderLimits::contiguous(1, 1, 1), report);
  });
  std::int64_t all = 0, once = 0;
  for (const PlannedTensor& tensor : plan.tensors)
    once += tensor.shape.elements() * static_cast<std::int64_t>(size_of(tensor.dtype));
  Table table{"loading",
              {"rank", "planned bytes", "copied bytes", "held bytes", "share of the model",
               "pages touched", "bytes of these pages"},
              {}};
  for (int rank = 0; rank < tp_size; ++rank) {
    const std::int64_t planned = plan.bytes(rank), pages = plan.pages(rank);
    all += planned;
    const MemoryCounter& memory = ranks[static_cast<std::size_t>(rank)].memory;
    table.rows.push_back(
        {std::to_string(rank), std::to_string(planned), std::to_string(memory.uploaded_bytes()),
         std::to_string(memory.use("weights").peak_bytes),
         fmt::format("{:.1f} %", 100 * static_cast<double>(planned) / static_cast<double>(once)),
         std::to_string(pages), std::to_string(pages * LoadPlan::kPageBytes)});
  }
  report.table(table);
  report.line(fmt::format(
      "the model has {} bytes; the ranks together read {}: {} more, for what several of "
      "them hold",
      once, all, all - once));
  report.line(fmt::format("pages of {} bytes: those that hold planned bytes; counted, not measured",
                          LoadPlan::kPageBytes));

  report.section("Communication");
  report.line("none: each rank reads the files for itself");
  report.section("Compared with the plan");
  for (int rank = 0; rank < tp_size; ++rank)
    report.expect(fmt::format("rank {}, bytes copied", rank),
                  ranks[static_cast<std::size_t>(rank)].memory.uploaded_bytes(), plan.bytes(rank));
}

}  // namespace tp

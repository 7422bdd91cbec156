#include "show_run.h"

#include <string>

#include <fmt/format.h>

#include "common/parallel/shards.h"
#include "layer.h"

namespace tp {

namespace {

constexpr std::size_t kJointStep = 7;  // runs A and B together

std::size_t message_bytes(const BatchPlan& plan) {
  std::vector<std::byte> bytes;
  plan.encode(bytes);
  return bytes.size();
}

// The rows of a plan's table, with letters for the sequences.
std::vector<std::vector<std::string>> rows_of(const BatchPlan& plan) {
  auto rows = plan.to_table("").rows;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i][0] = letter_of(plan.sequences[i].id);
  return rows;
}

// The table that every rank received, or all of them where they differ.
std::string table_on_all_ranks(const Run& run, std::size_t step, std::int32_t sequence) {
  std::vector<std::string> tables;
  for (const RankRecord& record : run.records)
    tables.push_back(block_table_of(record.plans.at(step - 1), sequence));
  return cell_of(tables);
}

}  // namespace

void show_run_begins(Report& report, bool check_hash) {
  report.section("The numeric run");
  report.line(fmt::format(
      "{} query heads and {} KV heads of {}, hidden {}, block size {}; sequences A, B, C, D",
      kHeads, kKvHeads, kHeadDim, kHidden, kBlockSize));
  report.line(check_hash
                  ? "in each step the ranks compare a hash of the plan that they received"
                  : "nobody looks whether the ranks received the same plan (--no-plan-hash)");
}

void show_shapes(Report& report, const Run& run) {
  const auto tp_size = static_cast<int>(run.records.size());
  report.section("Shapes and pools");
  report.line("the last rank is given less room than the others:");
  Table table{"pools",
              {"rank", "query heads", "KV heads", "keys, and values", "bytes of a block",
               "bytes for KV", "room for blocks", "used"},
              {}};
  for (int rank = 0; rank < tp_size; ++rank) {
    const RankRecord& record = run.records[static_cast<std::size_t>(rank)];
    const HeadShard heads = head_shard(kHeads, kKvHeads, rank, tp_size);
    const Shape pool{record.pool.num_blocks, heads.kv.size(), kBlockSize, kHeadDim};
    table.rows.push_back(
        {std::to_string(rank), cell_of(heads.query), cell_of(heads.kv), pool.to_string(),
         std::to_string(record.budget.bytes_per_block), std::to_string(record.budget.bytes),
         std::to_string(record.pool.blocks_of_rank.at(static_cast<std::size_t>(rank))),
         std::to_string(record.pool.num_blocks)});
  }
  report.table(table);
  report.line(run.records[0].pool.to_string());
  if (kHeads % tp_size != 0)
    report.line(fmt::format("uneven: the largest shard is {:.1f} % above the mean",
                            imbalance_percent(kHeads, tp_size)));
}

void show_plans(Report& report, const Run& run) {
  report.section("What rank 0 decides");
  Table table{"plans",
              {"step", "bytes", "seq", "positions", "block table", "slot mapping", "what happens"},
              {}};
  for (const BatchPlan& plan : run.records[0].plans) {
    std::string step = std::to_string(plan.step), bytes = std::to_string(message_bytes(plan));
    std::string what = what_happens(plan.step);
    for (const std::vector<std::string>& row : rows_of(plan)) {
      table.rows.push_back({step, bytes, row[0], row[2], "[" + row[3] + "]", row[4], what});
      step = bytes = what = "";
    }
  }
  report.table(table);
}

void show_message(Report& report, const Run& run) {
  const std::size_t rank = run.records.size() > 1 ? 1 : 0;
  const BatchPlan& plan = run.records[rank].plans.at(kJointStep - 1);
  report.section(fmt::format("The message of step {}, as rank {} decoded it", plan.step, rank));
  Table table = plan.to_table("message");
  table.rows = rows_of(plan);
  report.table(table);
  const std::size_t seqs = plan.sequences.size(), tokens = plan.token_ids.size(),
                    blocks = plan.block_ids.size();
  report.expect(fmt::format("bytes, 32 + 16 * {} sequences + 12 * {} tokens + 4 * {} block ids",
                            seqs, tokens, blocks),
                static_cast<std::int64_t>(message_bytes(plan)),
                static_cast<std::int64_t>(32 + 16 * seqs + 12 * tokens + 4 * blocks));
}

void show_tables(Report& report, const Run& run) {
  const std::size_t ranks = run.records.size();
  report.section("The block tables that the ranks received");
  const auto expect = [&](const std::string& what, std::size_t step, std::int32_t sequence,
                          const std::string& wanted) {
    report.expect(fmt::format("step {}, {}", step, what), table_on_all_ranks(run, step, sequence),
                  cell_of(std::vector<std::string>(ranks, wanted)));
  };
  expect("A at position 10", 7, kA, "[2 0 3]");
  expect("B, whose last block is 5", 7, kB, "[1 4 5]");
  expect("A at position 11, the last place of block 3", 8, kA, "[2 0 3]");
  expect("A at position 12, in a new block", 9, kA, "[2 0 3 7]");
  expect("B takes the blocks that A gave back", 10, kB, "[1 4 5 6 2 0 3 7]");
  expect("D begins with two blocks of B", 11, kD, "[1 4 8]");
  expect("D keeps them when B has ended", 12, kD, "[1 4 8]");
  const auto uses = [](const std::vector<std::int32_t>& counts) {
    return fmt::format("{}", fmt::join(counts, " "));
  };
  const std::vector<BlockReferences>& references = run.records[0].references;
  report.line("How many tables hold the blocks 0 to 8, on rank 0:");
  report.expect("step 9", uses(references.at(8).during), "1 1 1 1 1 1 1 1 0");
  report.expect("A has ended", uses(references.at(8).after), "0 1 0 0 1 1 1 0 0");
  report.expect("step 11, B and D share", uses(references.at(10).during), "1 2 1 1 2 1 1 1 1");
  report.expect("B has ended", uses(references.at(10).after), "0 1 0 0 1 0 0 0 1");
  report.expect("D has ended", uses(references.at(11).after), "0 0 0 0 0 0 0 0 0");
}

void show_communication(Report& report, const Run& run, bool check_hash) {
  report.section("Communication of rank 0");
  report.table(run.outputs[0].ledger.to_table());
  std::size_t bytes = message_bytes({});
  for (const BatchPlan& plan : run.records[0].plans) bytes += message_bytes(plan);
  const std::size_t messages = run.records[0].plans.size() + 1;
  report.line(
      fmt::format("  host group: {} messages from rank 0 to all, {} bytes; the last one, of {} "
                  "bytes, says stop",
                  messages, bytes, message_bytes({})));
  if (check_hash)
    report.line(fmt::format("  host group: {} plan hashes of 8 bytes from each rank", messages));
}

}  // namespace tp

// What is printed of a run: pools, plans, tables, communication.
#pragma once

#include <vector>

#include "common/core/report.h"
#include "common/engine/kv_pool.h"
#include "common/parallel/run_ranks.h"
#include "story.h"

namespace tp {

// What a rank saw.
struct RankRecord {
  KvBudget budget;
  KvPoolSize pool;
  std::vector<BatchPlan> plans;             // as this rank decoded them
  std::vector<BlockReferences> references;  // rank 0 only
};
struct Run {
  std::vector<RankOutput> outputs;
  std::vector<RankRecord> records;
};

// Printed before the run, so that an error stands under its heading.
void show_run_begins(Report& report, bool check_hash);
void show_shapes(Report& report, const Run& run);
void show_plans(Report& report, const Run& run);
// The message of the first step that runs A and B together.
void show_message(Report& report, const Run& run);
void show_tables(Report& report, const Run& run);
void show_communication(Report& report, const Run& run, bool check_hash);

}  // namespace tp

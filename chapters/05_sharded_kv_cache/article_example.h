// The article's example, and two small ones with numbers that can be checked in one's head.
#pragma once

#include "common/core/options.h"
#include "common/core/report.h"

namespace tp {

// 32 KV heads on four ranks: one block table, and what block 3 holds on each rank.
void show_article_example(const Options& options, Report& report);

// How many blocks a request needs, and that none of them is lost.
void show_blocks_needed(Report& report);

// Two ranks with different room for their KV caches.
void show_pool_size(const Options& options, Report& report);

}  // namespace tp

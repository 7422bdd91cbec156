// What two articles say about capacity, beside what the planner says.
#pragma once

#include "common/core/report.h"

namespace tp {

// The table of article 001, section 4.2, each row with a verdict.
void show_article_001(Report& report);

// Article 003: "流水线并行只把权重按层组分摊，每卡仍要放整段序列的缓存".
void show_article_003(Report& report);

}  // namespace tp

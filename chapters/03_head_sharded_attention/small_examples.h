// The article's example, the layout of RoPE, and the tp sizes of a large model.
#pragma once

#include "common/core/report.h"

namespace tp {

// 32 heads on 4 ranks: who has which heads, and a quarter of each weight.
void show_article_example(Report& report);

// Why 64 query and 8 KV heads cannot be split by 3, 5 and 6 ranks, and what --uneven does then.
void show_usable_tp_sizes(Report& report);

// Which features of a head RoPE turns together.
void show_rope_pairs(Report& report);

}  // namespace tp

// Examples with known figures: the article's, one with fewer KV heads than ranks, sizes that cannot
// be split, uneven splits, and a 70B model. Arithmetic only.
#pragma once

#include "common/core/report.h"

namespace tp {

// The table of article 002, which rank keeps which head, and where KV stops shrinking.
void show_article_example(Report& report);

// 4 KV heads on 8 ranks: who keeps what, and how not to count.
void show_fewer_kv_heads_than_ranks(Report& report);

// Which tp sizes three real shapes can have, and all reasons against the others.
void show_usable_sizes(Report& report);

// What uneven splits waste: time where query heads differ, memory where KV heads do.
void show_uneven(Report& report);

// The KV cache of a 70B model, and what makes it smaller when more ranks do not.
void show_70b(Report& report);

}  // namespace tp

// The example of article 002, which can be checked in one's head.
#pragma once

#include "common/core/options.h"
#include "common/core/report.h"

namespace tp {

// Prints the example step by step, computed by hand and by two ranks, and checks each figure.
void show_article_example(const Options& options, Report& report);

}  // namespace tp

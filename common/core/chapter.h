// The frame of every chapter's main. [introduced in chapter 01]
#pragma once

#include <functional>

#include "common/core/options.h"
#include "common/core/report.h"

namespace tp {

// Parses the options, runs the lesson, prints its verdict and writes the JSON file.
// Returns the exit code: 0 pass, 1 a check failed, 2 bad input, 3 a rank was lost, 77 no such
// device.
int chapter_main(int argc,
                 char** argv,
                 const ChapterSpec& spec,
                 const std::function<void(const Options&, Report&)>& lesson);

}  // namespace tp

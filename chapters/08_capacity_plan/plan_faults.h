// Mistakes that planners really make, put into the cards of a plan; and those of every chapter.
#pragma once

#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/plan/layout.h"

namespace tp {

std::vector<Fault> plan_faults();

// Alters a card before what fits on it is worked out; nothing for an unknown name.
CardHook hook_of(const std::string& fault);

}  // namespace tp

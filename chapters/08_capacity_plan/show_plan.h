// A plan as tables, lines and a picture.
#pragma once

#include <vector>

#include "common/core/report.h"
#include "common/plan/layout.h"
#include "job.h"

namespace tp {

void show_input(Report& report, const PlanJob& job);

// One row per layout, and for the usable ones the bytes of the card with the least room.
void show_layouts(Report& report, const PlanJob& job, const std::vector<LayoutPlan>& layouts);

// The layout to begin with, or what helps if none holds the load.
void show_choice(Report& report,
                 const PlanJob& job,
                 const std::vector<LayoutPlan>& layouts,
                 const CardHook& hook);

// A bar of memory per layout, for the page of --report.
std::string draw_layouts(const PlanInput& input, const std::vector<LayoutPlan>& layouts);

}  // namespace tp

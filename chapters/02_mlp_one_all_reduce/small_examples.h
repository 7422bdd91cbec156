// Examples small enough to check in one's head, and the price list of a large model.
#pragma once

#include "common/core/report.h"

namespace tp {

// Why the activation must stand between the column-parallel and the row-parallel layer.
void show_why_column_then_row(Report& report);

// How a fused gate_up matrix is split: part by part, never through the middle.
void show_fused_gate_up(Report& report);

// What the one all-reduce costs for a 70B layer, and what the naive form costs.
void show_price_list(Report& report);

}  // namespace tp

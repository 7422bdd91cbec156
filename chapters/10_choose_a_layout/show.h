// What the program says of a machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/core/report.h"
#include "common/topology/groups.h"
#include "common/topology/machine.h"

namespace tp {

// "8 GPUs, 12 NICs, 2 NUMA nodes".
std::string counts_of(const Machine& machine);
// "{0,1} {2,3}", each group by lowest number, whatever its rank order.
std::string partition_of(const Machine& machine,
                         const std::vector<std::vector<std::size_t>>& groups);
std::string partition_of(const Machine& machine, const GroupPlan& plan);
// "NV4", the worst link inside any of the groups; "none" for single cards.
std::string worst_link_of(const GroupPlan& plan);

void show_machine(Report& report, const Machine& machine);
void show_links(Report& report, const Machine& machine);
// `name` is the key of the table in the JSON file.
void show_plans(Report& report,
                const Machine& machine,
                const std::vector<GroupPlan>& plans,
                const std::string& name);
void show_warnings(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans);
void show_environment(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans);
// What article 002 does next: the layouts to compare, and how.
void show_next_steps(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans);

// Everything of the above that programs want, for the JSON file.
void record_all(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans);

}  // namespace tp

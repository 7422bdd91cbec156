// Chapter 10: choose a layout. Its first half: which cards belong together.
//
// You learn:  what the matrix of `nvidia-smi topo -m` says, and why the worst link of a TP group
//             counts and not the best one: every all-reduce waits for its slowest path.
// New here:   topology/ (reading the tables, groups of cards, device lists).
// Run:        ch10_choose_a_layout                            last line: PASS
//             ch10_choose_a_layout topology --topo FILE       your machine
//
// Shapes:     none. A machine is a symmetric matrix of links [cards, cards].
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "by_hand.h"
#include "common/core/chapter.h"
#include "common/topology/groups.h"
#include "faults.h"
#include "inputs.h"
#include "show.h"

using namespace tp;

namespace {

// What is known to be right for a machine that comes with the chapter.
struct Expected {
  std::size_t tp;
  std::string groups;
  std::string worst_link;
};
struct Lesson {
  std::string title, sample, counts;
  std::vector<Expected> expected;
};

const std::vector<Lesson>& lessons() {
  static const std::vector<Lesson> all{
      {"NVSwitch: every pair has the same link",
       "dgx_h100",
       "8 GPUs, 12 NICs, 2 NUMA nodes",
       {{2, "{0,1} {2,3} {4,5} {6,7}", "NV18"},
        {4, "{0,1,2,3} {4,5,6,7}", "NV18"},
        {8, "{0,1,2,3,4,5,6,7}", "NV18"}}},
      {"Bridges: NVLink joins pairs",
       "a6000_pairs",
       "8 GPUs, 0 NICs, 2 NUMA nodes",
       {{2, "{0,1} {2,3} {4,5} {6,7}", "NV4"},
        {4, "{0,1,2,3} {4,5,6,7}", "NODE"},
        {8, "{0,1,2,3,4,5,6,7}", "SYS"}}},
      {"A hybrid cube mesh: neighbours by number are not the best pairs",
       "dgx1_v100",
       "8 GPUs, 4 NICs, 2 NUMA nodes",
       {{2, "{0,3} {1,2} {4,7} {5,6}", "NV2"},
        {4, "{0,1,2,3} {4,5,6,7}", "NV1"},
        {8, "{0,1,2,3,4,5,6,7}", "SYS"}}},
      {"A workstation: no NVLink, no peer access",
       "workstation",
       "2 GPUs, 0 NICs, 1 NUMA node",
       {{2, "{0,1}", "PHB"}}}};
  return all;
}

// [region plans]
std::vector<GroupPlan> all_plans(const Machine& machine) {
  std::vector<GroupPlan> plans;
  for (const std::size_t tp : group_sizes(machine.size()))
    plans.push_back(plan_groups(machine, tp));
  return plans;
}
// [end plans]

// Compares the plans, made of what the reader took for the machine, with trying everything on it.
void compare_by_hand(Report& report,
                     const Machine& machine,
                     const Machine& as_read,
                     const std::vector<GroupPlan>& plans) {
  if (machine.size() > kMaxCardsByHand) {
    report.line(fmt::format("not compared: {} cards have too many partitions to try them all",
                            machine.size()));
    return;
  }
  for (const std::size_t tp : group_sizes(machine.size())) {
    const auto plan =
        std::find_if(plans.begin(), plans.end(), [&](const GroupPlan& p) { return p.tp == tp; });
    if (plan == plans.end() && as_read.size() == machine.size()) continue;  // not asked for
    report.expect(fmt::format("tp={}", tp),
                  plan == plans.end() ? "no such plan" : partition_of(as_read, *plan),
                  partition_of(machine, best_partition_by_hand(machine, tp)));
  }
}

// Without a subcommand: machines whose answers are known.
void run_lessons(const Options& options, Report& report) {
  for (const Lesson& lesson : lessons()) {
    const Machine machine = read_sample(lesson.sample);
    if (options.fault == "nic_counted_as_gpu" && machine.nics.empty()) continue;
    if (options.fault == "nvlink_anywhere" && lesson.sample != "a6000_pairs" &&
        lesson.sample != "dgx1_v100")
      continue;
    const Machine as_read = misread(machine, options.fault);
    const std::vector<GroupPlan> plans = all_plans(as_read);
    report.section(lesson.title);
    report.expect(lesson.sample, counts_of(as_read), lesson.counts);
    show_plans(report, as_read, plans, lesson.sample);
    for (const Expected& right : lesson.expected) {
      const auto plan = std::find_if(plans.begin(), plans.end(),
                                     [&](const GroupPlan& p) { return p.tp == right.tp; });
      const std::string found =
          plan == plans.end() ? "no such plan"
                              : partition_of(as_read, *plan) + " worst " + worst_link_of(*plan);
      report.expect(fmt::format("tp={}", right.tp), found,
                    right.groups + " worst " + right.worst_link);
    }
    report.line("compared with trying all partitions:");
    compare_by_hand(report, machine, as_read, plans);
  }
}

// The tool: one machine, in full.
void run_topology(const Options& options, const TopologyOptions& topology, Report& report) {
  const Machine machine = read_input(options, topology);
  const Machine as_read = misread(machine, options.fault);
  std::vector<GroupPlan> plans;
  if (options.tp_given)
    plans.push_back(plan_groups(as_read, static_cast<std::size_t>(options.tp)));
  else
    plans = all_plans(as_read);
  show_machine(report, as_read);
  show_links(report, as_read);
  report.section("TP groups");
  report.line("compared by their links from the worst up, then by NUMA nodes, then by numbers");
  show_plans(report, as_read, plans, "groups");
  show_warnings(report, as_read, plans);
  show_environment(report, as_read, plans);
  show_next_steps(report, as_read, plans);
  record_all(report, as_read, plans);
  report.section("Compared with trying all partitions");
  compare_by_hand(report, machine, as_read, plans);
}

ChapterSpec chapter() {
  ChapterSpec spec;
  spec.number = "10";
  spec.name = "choose_a_layout";
  spec.lesson = "The worst link of a TP group counts: every all-reduce waits for its slowest path.";
  spec.faults = topology_faults();
  spec.unused_options = {"--device",
                         "--comm",
                         "--uneven",
                         "--dtype",
                         "--kv-dtype",
                         "--math",
                         "--gpu-memory-utilization",
                         "--nccl-info",
                         "--seed",
                         "--timeout-s"};
  return spec;
}

// The command with its subcommand in front, if that stands behind an option; else nothing.
std::string in_right_order(const std::vector<std::string>& arguments) {
  const auto found = std::find(arguments.begin(), arguments.end(), "topology");
  if (found == arguments.begin() || found == arguments.end()) return {};
  if (*(found - 1) == "--json" || *(found - 1) == "--report") return {};  // the name of a file
  std::vector<std::string> others(arguments.begin(), found);
  others.insert(others.end(), found + 1, arguments.end());
  return fmt::format("ch10_choose_a_layout topology {}", fmt::join(others, " "));
}

}  // namespace

int main(int argc, char** argv) {
  ChapterSpec spec = chapter();
  const std::string_view first = argc > 1 ? argv[1] : "";
  TopologyOptions topology;
  if (first == "topology") {
    spec.subcommand = first;
    spec.example = "ch10_choose_a_layout topology --topo FILE --visible 0,1,2,3";
    spec.extra_options = topology_flags(topology);
    spec.what_runs = [](const Options&) {
      return std::string("reads what nvidia-smi printed; runs nothing on a device");
    };
    return chapter_main(argc - 1, argv + 1, spec, [&](const Options& options, Report& report) {
      run_topology(options, topology, report);
    });
  }
  if (const std::string right = in_right_order({argv + 1, argv + argc}); !right.empty()) {
    std::fputs(fmt::format("error: topology: must stand first: {}\n", right).c_str(), stderr);
    return 2;
  }
  if (!first.empty() && !first.starts_with('-')) {
    std::fputs(
        fmt::format(
            "error: {}: no such subcommand; this version has topology (layouts under load come "
            "later), and without one the chapter runs machines with known answers\n",
            first)
            .c_str(),
        stderr);
    return 2;
  }
  spec.unused_options.emplace_back("--tp");
  spec.example =
      "ch10_choose_a_layout                            machines with known answers\n"
      "  ch10_choose_a_layout topology --help            the tool for your machine\n"
      "This version has the subcommand topology; layouts under load come later.";
  spec.what_runs = [](const Options&) {
    return std::string("on saved output of nvidia-smi; runs nothing on a device");
  };
  return chapter_main(argc, argv, spec, [&](const Options& options, Report& report) {
    run_lessons(options, report);
  });
}

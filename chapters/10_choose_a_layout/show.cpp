#include "show.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/core/plural.h"
#include "common/topology/advice.h"
#include "common/topology/device_list.h"
#include "common/topology/picture.h"

namespace tp {

namespace {

std::string gpu(const Card& card) {
  return fmt::format("GPU{}", card.number);
}

// "NIC0 (mlx5_0)", at the link of the nearest.
std::string nearest_nics_of(const Machine& machine, std::size_t card) {
  std::string text;
  for (const std::size_t n : machine.nearest_nics(card)) {
    const Nic& nic = machine.nics[n];
    text += (text.empty() ? "" : ", ") + nic.column +
            (nic.device.empty() ? "" : fmt::format(" ({})", nic.device));
  }
  if (text.empty()) return "none";
  return text + " by " + machine.cards[card].to_nic[machine.nearest_nics(card)[0]].name();
}

// NICs that no card has for its nearest.
std::vector<std::string> lonely_nics(const Machine& machine) {
  std::vector<bool> near(machine.nics.size());
  for (std::size_t i = 0; i < machine.size(); ++i)
    for (const std::size_t n : machine.nearest_nics(i)) near[n] = true;
  std::vector<std::string> lonely;
  for (std::size_t n = 0; n < near.size(); ++n)
    if (!near[n]) lonely.push_back(machine.nics[n].column);
  return lonely;
}

std::string nvlinks_of(const Card& card) {
  if (!card.active_nvlinks) return "";
  return fmt::format("{} of {}", *card.active_nvlinks,
                     *card.active_nvlinks + *card.inactive_nvlinks);
}

// What `nvlink -s` says against the matrix.
std::vector<std::string> nvlink_problems(const Machine& machine) {
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < machine.size(); ++i) {
    const Card& card = machine.cards[i];
    if (!card.active_nvlinks) continue;
    if (*card.inactive_nvlinks > 0)
      problems.push_back(fmt::format(
          "{}: {} of {} NVLinks are not active; look at its bridge or at nvidia-smi nvlink -e",
          gpu(card), *card.inactive_nvlinks, *card.active_nvlinks + *card.inactive_nvlinks));
    int most = 0;
    for (std::size_t j = 0; j < machine.size(); ++j)
      if (i != j) most = std::max(most, machine.link(i, j).nvlinks());
    if (most > *card.active_nvlinks)
      problems.push_back(fmt::format(
          "{}: the matrix has NV{}, nvlink -s only {} active; save both at the same time",
          gpu(card), most, plural(*card.active_nvlinks, "link")));
  }
  return problems;
}

// The group that limits the others.
const Group& worst_group(const GroupPlan& plan) {
  return *std::max_element(plan.groups.begin(), plan.groups.end(), has_better_links);
}

// "tp=2 x pp=2, stages {0,1} | {2,3} (NV4 inside each stage)".
std::string in_words(const Machine& machine, const StageOffer& offer) {
  std::vector<std::string> stages;
  for (const Group& stage : offer.stages.groups) stages.push_back(set_of(machine, stage.order));
  const std::string inside =
      offer.stages.worst() ? offer.stages.worst()->name() + " inside each stage"
                           : fmt::format("single cards; measure {} replicas of tp=1 too", offer.pp);
  return fmt::format("tp={} x pp={}, stages {} ({})", offer.stages.tp, offer.pp,
                     fmt::join(stages, " | "), inside);
}

}  // namespace

std::string counts_of(const Machine& machine) {
  return fmt::format(
      "{}, {}, {}", plural(machine.size(), "GPU"), plural(machine.nics.size(), "NIC"),
      machine.places() == 0 ? "NUMA nodes unknown" : plural(machine.places(), "NUMA node"));
}

std::string partition_of(const Machine& machine,
                         const std::vector<std::vector<std::size_t>>& groups) {
  std::string text;
  for (const auto& group : groups) text += (text.empty() ? "" : " ") + set_of(machine, group);
  return text;
}

std::string partition_of(const Machine& machine, const GroupPlan& plan) {
  std::vector<std::vector<std::size_t>> groups;
  for (const Group& group : plan.groups) groups.push_back(group.cards);
  return partition_of(machine, groups);
}

std::string worst_link_of(const GroupPlan& plan) {
  return plan.worst() ? plan.worst()->name() : "none";
}

void show_machine(Report& report, const Machine& machine) {
  report.section("Machine");
  report.line(counts_of(machine));
  report.line(links_in_words(machine));
  report.line("peer access: " + peer_access_in_words(machine));
  for (const std::string& note : machine.notes) report.line(note);

  Table table{"cards", {"local", "card"}, {}};
  struct Column {
    std::string heading;
    std::vector<std::string> cells;
  };
  std::vector<Column> columns{
      {"name", {}}, {"NUMA node", {}}, {"CPUs", {}}, {"nearest NIC", {}}, {"NVLinks active", {}}};
  for (std::size_t i = 0; i < machine.size(); ++i) {
    const Card& card = machine.cards[i];
    table.rows.push_back({std::to_string(i), gpu(card)});
    const std::vector<std::string> cells{card.name, card.numa, card.cpus,
                                         machine.nics.empty() ? "" : nearest_nics_of(machine, i),
                                         nvlinks_of(card)};
    for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
  }
  for (const Column& column : columns) {  // only what some input tells
    if (std::all_of(column.cells.begin(), column.cells.end(),
                    [](const auto& cell) { return cell.empty(); }))
      continue;
    table.header.push_back(column.heading);
    for (std::size_t i = 0; i < machine.size(); ++i)
      table.rows[i].push_back(column.cells[i].empty() ? "unknown" : column.cells[i]);
  }
  report.table(table);
  const std::vector<std::string> lonely = lonely_nics(machine);
  if (!lonely.empty())
    report.line(fmt::format("NICs that are nearest to no card: {}", fmt::join(lonely, ", ")));
}

void show_links(Report& report, const Machine& machine) {
  report.section("Links");
  Table table{"links", {""}, {}};
  for (const Card& card : machine.cards) table.header.push_back(gpu(card));
  for (std::size_t i = 0; i < machine.size(); ++i) {
    table.rows.push_back({gpu(machine.cards[i])});
    table.colors.push_back({""});
    for (std::size_t j = 0; j < machine.size(); ++j) {
      table.rows.back().push_back(i == j ? "X" : machine.link(i, j).name());
      table.colors.back().push_back(i == j ? "" : terminal_color(machine.link(i, j)));
    }
  }
  report.table(table);
  report.picture("Links between the cards, as nvidia-smi topo -m names them", draw_links(machine));
}

void show_plans(Report& report,
                const Machine& machine,
                const std::vector<GroupPlan>& plans,
                const std::string& name) {
  Table table{
      name, {"tp", "groups, in rank order", "worst link", "NUMA nodes", "best single group"}, {}};
  for (const GroupPlan& plan : plans) {
    std::size_t places = 0;
    for (const Group& group : plan.groups) places = std::max(places, group.places);
    table.rows.push_back({std::to_string(plan.tp), sets_of(machine, plan.groups),
                          worst_link_of(plan),
                          machine.places() == 0 ? "unknown" : std::to_string(places),
                          set_of(machine, plan.best.order)});
  }
  report.table(table);
}

void show_warnings(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans) {
  report.section("Warnings");
  bool any = !machine.warnings.empty();
  for (const std::string& warning : machine.warnings) report.line(warning);
  for (const GroupPlan& plan : plans)
    for (const Warning& warning : warnings_of(machine, plan.groups)) {
      report.line(fmt::format("tp={}: {}", plan.tp, warning.text));
      any = true;
    }
  std::vector<std::string> names;
  for (const Card& card : machine.cards) names.push_back(card.name);
  std::vector<std::string> others = nvlink_problems(machine);
  const std::string order = device_order_warning(names, std::nullopt);
  if (!order.empty()) others.push_back(order);
  for (const std::string& text : others) {
    report.line(text);
    any = true;
  }
  if (!any) report.line("none");
}

void show_environment(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans) {
  report.section("Environment of each replica");
  for (const GroupPlan& plan : plans)
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      report.line(
          fmt::format("tp={} replica {}: {}", plan.tp, g, environment_of(machine, plan.groups[g])));
}

void show_next_steps(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans) {
  report.section("Next: measure");
  report.line(
      "These are candidates. The matrix names paths, not their bandwidth; measuring decides "
      "(article 002):");
  std::vector<std::string> layouts;
  for (const std::size_t tp : group_sizes(machine.size()))
    layouts.push_back(fmt::format("{} x tp={}", machine.size() / tp, tp));
  report.line(fmt::format("  layouts of all cards: {}", fmt::join(layouts, ", ")));
  for (const GroupPlan& plan : plans)
    for (const StageOffer& offer : stage_offers(machine, worst_group(plan)))
      report.line(fmt::format("  instead of tp={} on {}: {}", plan.tp,
                              set_of(machine, worst_group(plan).cards), in_words(machine, offer)));
  const GroupPlan& largest = plans.back();
  if (largest.groups.size() == 1 && largest.groups[0].worst() &&
      largest.groups[0].worst()->is_nvlink())
    report.line(fmt::format("  two such machines: tp={} inside each, pp=2 across", largest.tp));
  report.line(
      "1. Begin with the smallest tp that holds the model at your context and concurrency.");
  report.line(
      "2. One replica, few requests at a time, short and long inputs: TTFT and the time per output "
      "token.");
  report.line(
      "3. All replicas of the machine behind one entry, the same requests at the same total rate "
      "for every");
  report.line(
      "   layout: requests per second that meet both time limits (goodput); failed ones stay in "
      "the record.");
  report.line(
      "OK in topo -p2p is no proof that copied data arrive: only the self-test of an engine at its "
      "start decides.");
  report.line(
      "If that fails: switch P2P off (NCCL_P2P_DISABLE=1), then look at the IOMMU and at ACS of "
      "the PCIe switches.");
}

void record_all(Report& report, const Machine& machine, const std::vector<GroupPlan>& plans) {
  const auto count = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const auto numbers = [&](const std::vector<std::size_t>& cards) {
    std::vector<std::int32_t> all;
    for (const std::size_t card : cards) all.push_back(machine.cards[card].number);
    return all;
  };
  report.record("/machine/gpus", count(machine.size()));
  report.record("/machine/nics", count(machine.nics.size()));
  report.record("/machine/numa_nodes", count(machine.places()));
  report.record("/machine/peer_access", peer_access_in_words(machine));
  for (std::size_t w = 0; w < machine.warnings.size(); ++w)
    report.record(fmt::format("/machine/warnings/{}", w), machine.warnings[w]);
  for (std::size_t i = 0; i < machine.size(); ++i) {
    const std::string path = fmt::format("/machine/cards/{}", i);
    const Card& card = machine.cards[i];
    report.record(path + "/number", std::int64_t{card.number});
    report.record(path + "/name", card.name);
    report.record(path + "/uuid", card.uuid);
    report.record(path + "/numa", card.numa);
    report.record(path + "/cpus", card.cpus);
    std::vector<std::int32_t> nearest;
    for (const std::size_t n : machine.nearest_nics(i))
      nearest.push_back(static_cast<std::int32_t>(n));
    report.record(path + "/nearest_nics", nearest);
    for (std::size_t j = 0; j < machine.size(); ++j)
      report.record(fmt::format("{}/links/{}", path, j),
                    i == j ? std::string("X") : machine.link(i, j).name());
  }
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const GroupPlan& plan = plans[p];
    const std::string path = fmt::format("/plans/{}", p);
    report.record(path + "/tp", count(plan.tp));
    report.record(path + "/worst_link", worst_link_of(plan));
    report.record(path + "/best_group", numbers(plan.best.order));
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const Group& group = plan.groups[g];
      const std::string at = fmt::format("{}/groups/{}", path, g);
      report.record(at + "/cards", numbers(group.order));
      report.record(at + "/worst_link", group.worst() ? group.worst()->name() : "none");
      report.record(at + "/numa_nodes", count(group.places));
      report.record(at + "/environment", environment_of(machine, group));
    }
    const std::vector<Warning> warnings = warnings_of(machine, plan.groups);
    for (std::size_t w = 0; w < warnings.size(); ++w) {
      report.record(fmt::format("{}/warnings/{}/kind", path, w), warnings[w].kind);
      report.record(fmt::format("{}/warnings/{}/text", path, w), warnings[w].text);
    }
    const std::vector<StageOffer> offers = stage_offers(machine, worst_group(plan));
    for (std::size_t o = 0; o < offers.size(); ++o) {
      const std::string at = fmt::format("{}/stage_offers/{}", path, o);
      const GroupPlan& stages = offers[o].stages;
      report.record(at + "/tp", count(stages.tp));
      report.record(at + "/pp", count(offers[o].pp));
      for (std::size_t t = 0; t < stages.groups.size(); ++t)
        report.record(fmt::format("{}/stages/{}", at, t), numbers(stages.groups[t].order));
    }
  }
}

}  // namespace tp

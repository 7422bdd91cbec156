#include "common/topology/read_machine.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/topology/tables.h"
#include "common/topology/text_lines.h"

namespace tp {

namespace {

constexpr int kMaxNumaNode = 1023;

// All that is wrong, in the order in which it was found.
class Problems {
 public:
  void add(std::string line) {
    if (++count_ <= kMostShown) lines_.push_back(std::move(line));
  }
  std::size_t count() const { return count_; }
  void throw_if_any() const {
    if (count_ == 0) return;
    std::string text = fmt::format("{}", fmt::join(lines_, "\n"));
    if (count_ > kMostShown) text += fmt::format("\n(and {} more)", count_ - kMostShown);
    throw input_error(text);
  }

 private:
  static constexpr std::size_t kMostShown = 20;
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

// What is wrong with one text.
class Complaints {
 public:
  Complaints(std::string name, Problems& problems)
      : name_(std::move(name)), problems_(problems), before_(problems.count()) {}

  void at(std::size_t line, std::size_t column, const std::string& what) {
    problems_.add(fmt::format("{}:{}:{}: {}", name_, line, column, what));
  }
  void at(const Cell& cell, const std::string& what) { at(cell.line, cell.column, what); }
  void about_text(const std::string& what) { problems_.add(name_ + ": " + what); }

  const std::string& name() const { return name_; }
  bool empty() const { return problems_.count() == before_; }

 private:
  std::string name_;
  Problems& problems_;
  std::size_t before_;
};

// A word of a file in a message.
std::string shown(std::string_view word) {
  return printable(word, 24);
}

// "0-1,4" of a set of nodes, ranges written as ranges.
std::string node_list(const std::set<int>& nodes) {
  std::string text;
  for (auto first = nodes.begin(); first != nodes.end();) {
    auto last = first;
    for (auto next = std::next(last); next != nodes.end() && *next == *last + 1; ++next)
      last = next;
    text += fmt::format("{}{}", text.empty() ? "" : ",", *first);
    if (last != first) text += fmt::format("-{}", *last);
    first = std::next(last);
  }
  return text;
}

// "0", "0-1", "0,1" in one spelling; "" for "N/A" and for an empty cell; nothing if it is no such
// list.
std::optional<std::string> read_numa(std::string_view text) {
  if (text.empty() || text == "N/A") return "";
  std::set<int> nodes;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value >= 0 && value <= kMaxNumaNode;
  };
  while (true) {
    int first = 0;
    if (!number(first)) return std::nullopt;
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first) return std::nullopt;
    }
    for (int node = first; node <= last; ++node) nodes.insert(node);
    if (at == end) return node_list(nodes);
    if (*at++ != ',') return std::nullopt;
  }
}

// ---- a grid whose cells are understood ----

template <class Value>
struct Square {
  std::vector<int> numbers;  // of the GPUs, in the order of the columns
  std::vector<std::vector<std::optional<Value>>> values;  // nothing on the diagonal
  std::vector<std::vector<Link>> to_other;                // of the other columns
  std::vector<const Grid::Row*> rows;
};

constexpr std::string_view kLinkWords = "NV1 to NV99, PIX, PXB, PHB, NODE, SYS";
constexpr std::string_view kP2pWords = "OK, CNS, GNS, TNS, DR, NS, U";

// The rows in the order of the columns; a missing one is empty. False if rows and columns do not fit.
bool order_rows(const Grid& grid, std::vector<const Grid::Row*>& rows, Complaints& wrong) {
  std::map<std::string_view, const Grid::Row*> by_name;
  std::set<std::string_view> columns;
  bool fits = true;
  const auto complain = [&](const Cell& cell, const std::string& what) {
    wrong.at(cell, what + "; save the whole output again");
    fits = false;
  };
  for (const Cell& column : grid.gpu_columns)
    if (!columns.insert(column.text).second)
      complain(column, fmt::format("{} has two columns", shown(column.text)));
  for (const Grid::Row& row : grid.rows) {
    const std::string name = shown(row.name.text);
    if (!columns.contains(row.name.text))
      complain(row.name, fmt::format("{} has a row but no column in line {}", name, grid.line));
    else if (!by_name.emplace(row.name.text, &row).second)
      complain(row.name, fmt::format("{} has two rows", name));
  }
  std::vector<const Cell*> missing;
  for (const Cell& column : grid.gpu_columns) {
    const auto found = by_name.find(column.text);
    rows.push_back(found == by_name.end() ? nullptr : found->second);
    if (rows.back() == nullptr) missing.push_back(&column);
  }
  if (!missing.empty()) {
    constexpr std::size_t kMost = 8;
    std::vector<std::string> names;
    for (const Cell* column : missing)
      if (names.size() < kMost) names.push_back(shown(column->text));
    if (missing.size() > kMost) names.emplace_back("...");
    complain(
        *missing[0],
        fmt::format("no row for {}: the table ends in line {} with {} of {} rows, it is cut off "
                    "or damaged",
                    fmt::join(names, ", "), grid.last_line, rows.size() - missing.size(),
                    rows.size()));
  }
  return fits;
}

// Reads all cells of the GPU columns with `parse`, and those of the NIC columns as links.
template <class Value, class Parse>
std::optional<Square<Value>> read_square(const Grid& grid,
                                         Parse parse,
                                         std::string_view words,
                                         Complaints& wrong) {
  Square<Value> square;
  bool fits = order_rows(grid, square.rows, wrong);
  const auto complain = [&](const Cell& cell, const std::string& what) {
    wrong.at(cell, what);
    fits = false;
  };
  const std::size_t count = grid.gpu_columns.size(), width = count + grid.other_columns.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (square.rows[i] == nullptr) continue;
    const Grid::Row& row = *square.rows[i];
    square.numbers.push_back(*gpu_number(row.name.text));
    square.values.emplace_back();
    square.to_other.emplace_back();
    for (std::size_t j = 0; j < row.cells.size(); ++j) {
      const Cell& cell = row.cells[j];
      const Cell& column = j < count ? grid.gpu_columns[j] : grid.other_columns[j - count];
      const auto is_none_of = [&](std::string_view allowed) {
        complain(cell, fmt::format("row {}, column {}: {} is none of {}", row.name.text,
                                   shown(column.text), shown(cell.text), allowed));
      };
      if (j == i) {
        square.values.back().emplace_back();
        if (cell.text != "X") is_none_of("X, as where a card meets itself");
      } else if (j < count) {
        square.values.back().push_back(parse(cell.text));
        if (!square.values.back().back()) is_none_of(words);
      } else if (const std::optional<Link> link = Link::parse(cell.text)) {
        square.to_other.back().push_back(*link);
      } else {
        is_none_of(kLinkWords);
      }
    }
    if (row.cells.size() < width)
      complain({"", row.name.line, row.end_column},
               fmt::format("the row of {} ends after {} of {} cells; it is cut off, save the whole "
                           "output again",
                           row.name.text, row.cells.size(), width));
    for (const Cell* field : {&row.cpus, &row.numa})
      if (Link::parse(field->text) || field->text == "X")
        complain(*field,
                 fmt::format("row {}: {} is a cell too many; line {} has {} columns of devices",
                             row.name.text, shown(field->text), grid.line, width));
  }
  if (!fits) return std::nullopt;
  return square;
}

// Both halves of a matrix of links must agree.
bool symmetric(const Grid& grid, const Square<Link>& square, Complaints& wrong) {
  bool same = true;
  for (std::size_t i = 0; i < square.numbers.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Link below = *square.values[i][j], above = *square.values[j][i];
      if (below == above) continue;
      same = false;
      const Cell& other = square.rows[j]->cells[i];
      wrong.at(square.rows[i]->cells[j],
               fmt::format(
                   "{} to {} is {}, but {} to {} is {} (line {}, column {}); both must be the same",
                   grid.gpu_columns[i].text, grid.gpu_columns[j].text, below.name(),
                   grid.gpu_columns[j].text, grid.gpu_columns[i].text, above.name(), other.line,
                   other.column));
    }
  return same;
}

// Whether the columns of CPU and NUMA affinity can be understood. A row that lacks what the first one
// has is cut off.
bool check_affinities(const Grid& grid, Complaints& wrong) {
  bool fits = true;
  for (const Grid::Row& row : grid.rows) {
    if (!read_numa(row.numa.text)) {
      wrong.at(row.numa,
               fmt::format("row {}: the NUMA affinity {} must be written like 0, 0-1, 0,1 or N/A",
                           row.name.text, shown(row.numa.text)));
      fits = false;
    }
    if (row.cpus.text.empty() == grid.rows[0].cpus.text.empty() &&
        row.numa.text.empty() == grid.rows[0].numa.text.empty())
      continue;
    wrong.at(
        row.name.line, row.end_column,
        fmt::format("the rows of {} and {} do not have the same cells of CPU and NUMA affinity; "
                    "one is cut off, save the whole output again",
                    grid.rows[0].name.text, row.name.text));
    fits = false;
  }
  return fits;
}

// The machine of a matrix of links, or nothing if something is wrong with it.
std::optional<Machine> machine_of(const Grid& grid, Complaints& wrong) {
  const auto square = read_square<Link>(grid, Link::parse, kLinkWords, wrong);
  const bool fits = check_affinities(grid, wrong);
  if (!square || !fits || !symmetric(grid, *square, wrong)) return std::nullopt;
  Machine machine;
  for (std::size_t i = 0; i < square->numbers.size(); ++i) {
    const Grid::Row& row = *square->rows[i];
    Card card;
    card.number = square->numbers[i];
    if (row.cpus.text != "N/A") card.cpus = row.cpus.text;
    card.numa = read_numa(row.numa.text).value();
    card.to_nic = square->to_other[i];
    machine.cards.push_back(std::move(card));
    machine.links.emplace_back();
    for (const std::optional<Link>& link : square->values[i])
      machine.links.back().push_back(link.value_or(Link::sys()));
  }
  for (const Cell& column : grid.other_columns) {
    const auto device = grid.devices.find(column.text);
    machine.nics.push_back({column.text, device == grid.devices.end() ? "" : device->second});
  }
  if (grid.other_rows != 0 && grid.other_rows < grid.other_columns.size())
    machine.notes.push_back(
        fmt::format("{}, line {}: the table ends with {} of {} rows of NICs; those of the GPUs are "
                    "whole",
                    wrong.name(), grid.last_line, grid.other_rows, grid.other_columns.size()));
  return machine;
}

// ---- the texts ----

// What the texts hold, put together.
class Assembly {
 public:
  void read(const TopologyText& text) {
    Complaints wrong(text.name, problems_);
    if (text.text.starts_with("\xff\xfe") || text.text.starts_with("\xfe\xff"))
      wrong.about_text("is UTF-16 text, as PowerShell writes it with >; save it as UTF-8");
    else
      read_tables(text, find_tables(text.text), wrong);
  }

  Machine finish() {
    if (machine_)
      add_the_rest();
    else if (problems_.count() == 0)
      problems_.add("no matrix of nvidia-smi topo -m was given; groups are made from it");
    problems_.throw_if_any();
    return std::move(*machine_);
  }

 private:
  using Role = TopologyText::Role;
  struct P2p {
    Square<P2pStatus> square;
    std::string where;
  };

  void read_tables(const TopologyText& text, const FoundTables& found, Complaints& wrong) {
    for (const Cell& row : found.stray_rows) {
      wrong.at(
          row,
          fmt::format(
              "the row of {} belongs to no table: the line with the columns GPU0, GPU1, ... is "
              "missing above it; save the whole output again",
              shown(row.text)));
      break;  // the others have the same cause
    }
    bool has_matrix = false, has_p2p = false;
    for (const Grid& grid : found.grids) {
      const bool is_p2p =
          grid.kind == Grid::Kind::p2p ||
          (grid.kind == Grid::Kind::undecided && is_p2p_by_context(text.role, grid, has_matrix));
      if (is_p2p) {
        has_p2p = true;
        read_p2p(text, grid, wrong);
      } else {
        has_matrix = true;
        read_matrix(text, grid, wrong);
      }
    }
    for (const ListedGpu& gpu : found.listed) read_listed(gpu, wrong);
    if (wrong.empty()) expect_content(text.role, has_matrix, has_p2p, !found.listed.empty(), wrong);
  }

  // A table of one GPU has only the cell X.
  static bool is_p2p_by_context(Role role, const Grid& grid, bool has_matrix) {
    if (role == Role::p2p_read || role == Role::p2p_write) return true;
    return grid.access != Grid::Access::unsaid || (has_matrix && !grid.has_cpus && !grid.has_numa);
  }

  static void expect_content(
      Role role, bool has_matrix, bool has_p2p, bool has_list, Complaints& wrong) {
    const auto expected = [&](bool there, std::string_view command) {
      if (!there)
        wrong.about_text(
            fmt::format("holds no output of nvidia-smi {}; save it with nvidia-smi {} > FILE",
                        command, command));
    };
    if (role == Role::p2p_read) expected(has_p2p, "topo -p2p r");
    if (role == Role::p2p_write) expected(has_p2p, "topo -p2p w");
    if (role == Role::nvlink) expected(has_list, "nvlink -s");
    if (role == Role::any) expected(has_matrix || has_p2p || has_list, "topo -m");
  }

  void read_matrix(const TopologyText& text, const Grid& grid, Complaints& wrong) {
    std::optional<Machine> machine = machine_of(grid, wrong);
    if (!machine) return;
    const std::string where = fmt::format("{}, line {}", text.name, grid.line);
    if (!machine_) {
      machine_ = std::move(machine);
      matrix_where_ = where;
      machine_->notes.push_back(fmt::format("topo -m: {}", where));
      return;
    }
    const auto numbers = [](const Machine& m) {
      std::vector<int> all;
      for (const Card& card : m.cards) all.push_back(card.number);
      return all;
    };
    if (numbers(*machine) != numbers(*machine_) || machine->links != machine_->links)
      wrong.at(grid.line, grid.gpu_columns.front().column,
               fmt::format("a second matrix of topo -m, and it differs from that of {}; give one "
                           "machine at a time",
                           matrix_where_));
    else
      machine_->notes.push_back(fmt::format("topo -m once more, the same: {}", where));
  }

  void read_p2p(const TopologyText& text, const Grid& grid, Complaints& wrong) {
    if (grid.access == Grid::Access::other) return;  // atomics, NVLink, PCIe: of no use here
    auto square = read_square<P2pStatus>(grid, parse_p2p_status, kP2pWords, wrong);
    if (!square) return;
    const bool is_write =
        text.role == Role::p2p_write || grid.access == Grid::Access::write ||
        (text.role == Role::any && grid.access == Grid::Access::unsaid && read_.has_value());
    std::optional<P2p>& place = is_write && text.role != Role::p2p_read ? write_ : read_;
    if (place) {
      wrong.at(grid.line, grid.gpu_columns.front().column,
               fmt::format("one more table of P2P status; that for {} was in {}",
                           is_write ? "writing" : "reading", place->where));
      return;
    }
    place = P2p{std::move(*square), fmt::format("{}, line {}", text.name, grid.line)};
    place->square.rows.clear();  // they point into the text's tables
  }

  void read_listed(const ListedGpu& gpu, Complaints& wrong) {
    ListedGpu& known = listed_[gpu.number];
    if (!known.uuid.empty() && !gpu.uuid.empty() && known.uuid != gpu.uuid)
      wrong.at(gpu.heading,
               fmt::format("GPU {} has the UUID {}, before it had {}; give one machine at a time",
                           gpu.number, shown(gpu.uuid), shown(known.uuid)));
    if (!gpu.uuid.empty()) known.uuid = gpu.uuid;
    if (!gpu.name.empty()) known.name = gpu.name;
    if (!gpu.nvlinks.empty()) known.nvlinks = gpu.nvlinks;
    if (gpu.mig && !known.mig) known.mig = gpu.mig;
  }

  void add_the_rest() {
    add_p2p(read_, machine_->p2p_read, "topo -p2p r");
    add_p2p(write_, machine_->p2p_write, "topo -p2p w");
    for (Card& card : machine_->cards) {
      const auto found = listed_.find(card.number);
      if (found == listed_.end()) continue;
      const ListedGpu& gpu = found->second;
      card.name = gpu.name;
      card.uuid = gpu.uuid;
      card.has_mig = gpu.mig.has_value();
      if (gpu.nvlinks.empty()) continue;
      card.active_nvlinks =
          static_cast<int>(std::count(gpu.nvlinks.begin(), gpu.nvlinks.end(), true));
      card.inactive_nvlinks = static_cast<int>(gpu.nvlinks.size()) - *card.active_nvlinks;
    }
  }

  void add_p2p(const std::optional<P2p>& p2p, P2pMatrix& target, std::string_view command) {
    if (!p2p) return;
    std::map<int, std::size_t> place;
    for (std::size_t i = 0; i < p2p->square.numbers.size(); ++i) place[p2p->square.numbers[i]] = i;
    std::vector<std::size_t> order;
    for (const Card& card : machine_->cards)
      if (place.contains(card.number)) order.push_back(place[card.number]);
    if (order.size() != machine_->size() || order.size() != place.size()) {
      problems_.add(fmt::format(
          "{}: the table of P2P status has {} GPUs, the matrix of {} has {}, or others; "
          "give the tables of one machine",
          p2p->where, place.size(), matrix_where_, machine_->size()));
      return;
    }
    for (const std::size_t i : order) {
      target.emplace_back();
      for (const std::size_t j : order)
        target.back().push_back(p2p->square.values[i][j].value_or(P2pStatus::ok));
    }
    machine_->notes.push_back(fmt::format("{}: {}", command, p2p->where));
  }

  std::optional<Machine> machine_;
  std::string matrix_where_;
  std::optional<P2p> read_, write_;
  std::map<int, ListedGpu> listed_;
  Problems problems_;
};

}  // namespace

Machine read_machine(const std::vector<TopologyText>& texts) {
  Assembly assembly;
  for (const TopologyText& text : texts) assembly.read(text);
  return assembly.finish();
}

}  // namespace tp

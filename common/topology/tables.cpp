#include "common/topology/tables.h"

#include <algorithm>
#include <charconv>

#include "common/topology/link.h"
#include "common/topology/text_lines.h"

namespace tp {

namespace {

using Words = std::vector<Word>;

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || next != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

// "3:" is 3.
std::optional<int> number_with_colon(std::string_view word) {
  if (!word.ends_with(':')) return std::nullopt;
  return whole_number(word.substr(0, word.size() - 1));
}

std::string_view word_at(const Words& words, std::size_t i) {
  return i < words.size() ? words[i].text : std::string_view();
}

bool is_cell(std::string_view word) {
  return word == "X" || Link::parse(word) || parse_p2p_status(word);
}

bool names(const std::vector<Cell>& columns, std::string_view word) {
  return std::any_of(columns.begin(), columns.end(), [&](const Cell& c) { return c.text == word; });
}

// What follows the cells of a row: CPU affinity, NUMA affinity, and what nobody needs. Between tabs
// a cell may be empty; where blanks stand for tabs, an empty cell cannot be seen.
std::vector<Cell> fields_behind(const TextLine& line, std::size_t begin) {
  const std::string_view all = line.text;
  std::vector<Cell> fields;
  const std::size_t first_tab = all.find('\t', begin);
  if (all.find_first_not_of(' ', begin) != first_tab) {
    for (const Word& word : line.words())
      if (word.column > begin) fields.push_back({std::string(word.text), line.number, word.column});
    return fields;
  }
  for (std::size_t tab = first_tab; tab != std::string_view::npos;) {
    const std::size_t next = all.find('\t', tab + 1);
    const std::string_view between =
        all.substr(tab + 1, next == std::string_view::npos ? next : next - tab - 1);
    const std::size_t from = between.find_first_not_of(' ');
    if (from == std::string_view::npos)
      fields.push_back({"", line.number, tab + 2});
    else
      fields.push_back({std::string(between.substr(from, between.find_last_not_of(' ') - from + 1)),
                        line.number, tab + 2 + from});
    tab = next;
  }
  return fields;
}

class Finder {
 public:
  void read(const TextLine& line) {
    const Words words = line.words();
    if (words.empty()) return;
    note_command(words);
    if (read_listed_gpu(line, words) || read_head(line, words) || read_row(line, words)) return;
    open_ = false;
    if (gpu_number(words[0].text) && is_cell(word_at(words, 1)))
      found_.stray_rows.push_back({std::string(words[0].text), line.number, words[0].column});
    read_nic_legend(words);
  }

  FoundTables take() { return std::move(found_); }

 private:
  // "$ nvidia-smi topo -p2p w": what the next table is.
  void note_command(const Words& words) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i].text != "-p2p") continue;
      const std::string_view what = words[i + 1].text;
      next_access_ = what.starts_with('r')   ? Grid::Access::read
                     : what.starts_with('w') ? Grid::Access::write
                                             : Grid::Access::other;
    }
  }

  bool read_listed_gpu(const TextLine& line, const Words& words) {
    if (words[0].text == "GPU") {
      const std::optional<int> number = number_with_colon(word_at(words, 1));
      if (!number) return false;
      open_ = false;
      ListedGpu gpu;
      gpu.heading = {line.text, line.number, words[0].column};
      gpu.number = *number;
      const std::string_view all = line.text;
      const std::size_t name = words[1].column + words[1].text.size();  // the blank behind "0:"
      const std::size_t bracket = std::min(all.find("(UUID: ", name), all.size());
      const std::size_t uuid = bracket + 7;
      if (name < bracket) gpu.name = all.substr(name, bracket - name);
      gpu.name.erase(gpu.name.find_last_not_of(" \t") + 1);
      if (uuid < all.size())
        gpu.uuid = all.substr(uuid, std::min(all.find(')', uuid), all.size()) - uuid);
      found_.listed.push_back(std::move(gpu));
      return true;
    }
    if (found_.listed.empty()) return false;
    ListedGpu& gpu = found_.listed.back();
    if (words[0].text == "Link" && number_with_colon(word_at(words, 1))) {
      gpu.nvlinks.push_back(word_at(words, 3) == "GB/s");
      return true;
    }
    if (words[0].text == "MIG" && line.text.find("UUID: MIG-") != std::string::npos) {
      if (!gpu.mig) gpu.mig = Cell{std::string(word_at(words, 1)), line.number, words[0].column};
      return true;
    }
    return false;
  }

  // "GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity GPU NUMA ID". The last heading begins with "GPU" but
  // is no card.
  bool read_head(const TextLine& line, const Words& words) {
    if (!gpu_number(words[0].text)) return false;
    const std::string_view second = word_at(words, 1);
    const bool more_columns =
        gpu_number(second) || second == "CPU" || second == "NUMA" || second == "GPU";
    if (open_ && names(grid().gpu_columns, words[0].text) && !more_columns) return false;
    if (is_cell(second)) return false;
    open_ = true;
    found_.grids.emplace_back();
    grid().line = grid().last_line = line.number;
    grid().access = next_access_;
    next_access_ = Grid::Access::unsaid;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i].text, next = word_at(words, i + 1);
      if (word == "CPU" && next == "Affinity") {
        grid().has_cpus = true;
        ++i;
      } else if (word == "NUMA" && next == "Affinity") {
        grid().has_numa = true;
        ++i;
      } else if (word == "GPU" && next == "NUMA") {
        break;
      } else {
        auto& columns = gpu_number(word) ? grid().gpu_columns : grid().other_columns;
        columns.push_back({std::string(word), line.number, words[i].column});
      }
    }
    return true;
  }

  bool read_row(const TextLine& line, const Words& words) {
    if (!open_) return false;
    const bool is_gpu = gpu_number(words[0].text).has_value();
    if (!is_gpu && !names(grid().other_columns, words[0].text)) return false;
    grid().last_line = line.number;
    if (!is_gpu) {
      ++grid().other_rows;
      return true;
    }
    Grid::Row row;
    row.name = {std::string(words[0].text), line.number, words[0].column};
    row.end_column = line.end_column();
    const std::size_t width = grid().gpu_columns.size() + grid().other_columns.size();
    for (std::size_t i = 1; i < words.size() && i <= width; ++i) {
      row.cells.push_back({std::string(words[i].text), line.number, words[i].column});
      decide_kind(words[i].text);
    }
    if (words.size() > width) {
      const Word& last = words[width];
      const std::vector<Cell> fields = fields_behind(line, last.column - 1 + last.text.size());
      std::size_t next = 0;
      if (grid().has_cpus && next < fields.size()) row.cpus = fields[next++];
      if (grid().has_numa && next < fields.size()) row.numa = fields[next++];
    }
    grid().rows.push_back(std::move(row));
    return true;
  }

  void decide_kind(std::string_view word) {
    if (grid().kind != Grid::Kind::undecided) return;
    if (Link::parse(word)) grid().kind = Grid::Kind::links;
    if (parse_p2p_status(word)) grid().kind = Grid::Kind::p2p;
  }

  // "NIC0: mlx5_0"
  void read_nic_legend(const Words& words) {
    if (found_.grids.empty() || words.size() < 2 || !words[0].text.ends_with(':')) return;
    const std::string_view name = words[0].text.substr(0, words[0].text.size() - 1);
    if (names(grid().other_columns, name)) grid().devices.emplace(name, words[1].text);
  }

  Grid& grid() { return found_.grids.back(); }

  FoundTables found_;
  bool open_ = false;  // the next line may be a row of the last grid
  Grid::Access next_access_ = Grid::Access::unsaid;
};

}  // namespace

std::optional<int> gpu_number(std::string_view word) {
  if (!word.starts_with("GPU")) return std::nullopt;
  return whole_number(word.substr(3));
}

FoundTables find_tables(std::string_view text) {
  Finder finder;
  LineReader lines(text);
  while (const std::optional<TextLine> line = lines.next()) finder.read(*line);
  return finder.take();
}

}  // namespace tp

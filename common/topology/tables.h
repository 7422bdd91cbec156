// The tables of nvidia-smi as they stand in a text, not yet judged. [introduced in chapter 10]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

// A piece of text and where it stands.
struct Cell {
  std::string text;
  std::size_t line = 0, column = 0;
};

// A square table with a column and a row per GPU: `topo -m` or `topo -p2p`.
struct Grid {
  enum class Kind : std::uint8_t { links, p2p, undecided };  // one GPU has only the cell X
  enum class Access : std::uint8_t { read, write, other, unsaid };

  struct Row {
    Cell name;
    std::vector<Cell> cells;  // of the GPU and NIC columns
    Cell cpus, numa;          // empty if the table has no such column or the row no such cell
    std::size_t end_column = 0;
  };

  Kind kind = Kind::undecided;
  Access access = Access::unsaid;  // by the command that was echoed above
  std::size_t line = 0, last_line = 0;
  std::vector<Cell> gpu_columns;    // "GPU0"
  std::vector<Cell> other_columns;  // "NIC0" or "mlx5_0"
  bool has_cpus = false, has_numa = false;
  std::vector<Row> rows;                       // of the GPUs
  std::size_t other_rows = 0;                  // of the NICs, which repeat what the columns say
  std::map<std::string, std::string> devices;  // of the NIC legend: "NIC0" is "mlx5_0"
};

// "GPU 0: NAME (UUID: ...)" and what stands below it, from `nvlink -s` or `-L`.
struct ListedGpu {
  Cell heading;
  int number = 0;
  std::string name, uuid;
  std::vector<bool> nvlinks;  // whether each is active
  std::optional<Cell> mig;    // the first MIG slice
};

struct FoundTables {
  std::vector<Grid> grids;
  std::vector<ListedGpu> listed;
  std::vector<Cell> stray_rows;  // rows of a table whose head is missing
};

// Finds all tables; text around them does not matter.
FoundTables find_tables(std::string_view text);

// The number of "GPU7"; nothing for any other word.
std::optional<int> gpu_number(std::string_view word);

}  // namespace tp

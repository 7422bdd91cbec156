// Command line of a chapter: the options that all chapters share, and its own.
// [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tp {

// The options that every chapter accepts.
struct Options {
  std::string device = "auto";  // auto, cpu, cuda
  std::string comm = "auto";    // auto, threads, nccl, peer, mpi
  std::int64_t tp = 2;          // number of ranks
  bool tp_given = false;
  bool uneven = false;   // allow sizes that tp does not divide
  std::string dtype;     // storage of weights: f32, bf16, f16, or empty for "as stored"
  std::string kv_dtype;  // storage of the KV cache: f32, bf16, f16, or empty for the device's own
  double gpu_memory_utilization = 0.9;  // part of a GPU's memory that its ranks together may use
  bool nccl_info = false;               // only tell what NCCL says about itself
  std::string math;                     // activations: f32
  std::int64_t seed = 1;                // 0 or above
  double timeout_s = 30;                // how long a rank waits for another
  std::string json_file;
  std::string report_file;  // an HTML page
  std::string fault;        // a mistake to be made on purpose, empty for none
};

// An option of one chapter; the parsed value goes to `target`.
struct ExtraOption {
  std::string flags;  // "--max-tokens" or "--tp,--tensor-parallel-size"
  std::variant<bool*,
               std::int64_t*,
               std::string*,
               std::optional<std::int64_t>*,
               std::optional<double>*,
               std::vector<std::string>*>
      target;
  std::string help;
};

// A mistake that a chapter can make on purpose, to show which check catches it.
struct Fault {
  std::string name;
  std::string description;
};

// What a chapter says about itself.
struct ChapterSpec {
  std::string number;  // "01"
  std::string name;    // "column_row_split"
  std::string lesson;  // one sentence
  std::string example;
  std::string subcommand;                   // "topology", if one was given
  std::vector<std::string> unused_options;  // shared options that do nothing here: not in --help
  std::string default_dtype = "f32";        // of weights, as shown in the first lines of the output
  std::vector<std::string> dtypes{"f32", "bf16", "f16"};  // what --dtype may be
  std::vector<std::string> kv_dtypes{"f32"};              // and --kv-dtype
  // The line of the output that says what runs; without it, ranks on a device. [chapter 08]
  std::function<std::string(const Options&)> what_runs;
  std::vector<Fault> faults;
  std::vector<ExtraOption> extra_options;

  std::string binary() const { return "ch" + number + "_" + name; }
};

// Parses the command line. Returns nothing if --help was printed.
// Errors: tp::Error (input) for an unknown option or value, all problems of values at once;
//         tp::Error (device) if the machine or the build lacks the device or the communicator.
std::optional<Options> parse_options(int argc, char** argv, const ChapterSpec& spec);

}  // namespace tp

#include "inputs.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/plural.h"
#include "common/topology/device_list.h"
#include "common/topology/read_machine.h"

namespace tp {

namespace {

using Role = TopologyText::Role;

constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

std::string read_stream(std::istream& stream, const std::string& name) {
  std::string text;
  std::array<char, 65536> part;
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kMaxTextBytes)
      throw input_error(fmt::format("{}: holds more than {} MiB; give what nvidia-smi printed",
                                    name, kMaxTextBytes >> 20));
  }
  if (stream.bad()) throw input_error(name + ": cannot be read");
  return text;
}

TopologyText read_text(const std::string& path, Role role) {
  if (path == "-") return {"standard input", read_stream(std::cin, "standard input"), role};
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw input_error(path + ": cannot be opened; give a file with the output of nvidia-smi");
  return {path, read_stream(file, path), role};
}

std::vector<TopologyText> read_files(const TopologyOptions& topology) {
  struct Named {
    const char* flag;
    const std::string& path;
    Role role;
  };
  const std::array<Named, 4> files{{{"--topo", topology.topo, Role::any},
                                    {"--p2p-read", topology.p2p_read, Role::p2p_read},
                                    {"--p2p-write", topology.p2p_write, Role::p2p_write},
                                    {"--nvlink", topology.nvlink, Role::nvlink}}};
  std::vector<TopologyText> texts;
  std::vector<std::string> problems, from_stdin;
  for (const Named& file : files) {
    if (file.path.empty()) continue;
    if (file.path == "-") from_stdin.emplace_back(file.flag);
    try {
      if (file.path != "-" || from_stdin.size() == 1)
        texts.push_back(read_text(file.path, file.role));
    } catch (const Error& e) {
      problems.push_back(fmt::format("{} {}", file.flag, e.what()));
    }
  }
  if (from_stdin.size() > 1)
    problems.push_back(
        fmt::format("{}: only one option can read standard input; with --topo - it may hold "
                    "several tables",
                    fmt::join(from_stdin, " and ")));
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
  return texts;
}

struct Finished {
  int exit_code = 0;
  std::string output;
};

Finished run_command(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {127, ""};
  Finished done;
  std::array<char, 4096> part;
  for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    if (done.output.size() < kMaxTextBytes) done.output.append(part.data(), count);
  const int status = ::pclose(pipe);
  done.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  return done;
}

// All tables in one text, each below its command, as a user would save them.
TopologyText ask_nvidia_smi() {
  constexpr const char* kHint =
      "give its output from the machine in question, saved in a file, with --topo FILE";
  TopologyText all{"nvidia-smi", "", Role::any};
  for (const char* arguments : {"topo -m", "topo -p2p r", "topo -p2p w", "nvlink -s", "-L"}) {
    const std::string command = fmt::format("nvidia-smi {}", arguments);
    const Finished done = run_command(command);
    const bool is_matrix = all.text.empty();
    if (is_matrix && done.exit_code == 127)
      throw Error(ErrorKind::device,
                  fmt::format("nvidia-smi: is not on this machine, or not in PATH; {}", kHint));
    if (is_matrix && done.exit_code != 0)
      throw Error(ErrorKind::device,
                  fmt::format("{}: failed with exit code {}: {}; {}", command, done.exit_code,
                              done.output.substr(0, done.output.find('\n')), kHint));
    if (done.exit_code == 0) all.text += fmt::format("$ {}\n{}\n", command, done.output);
  }
  return all;
}

std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

struct VisibleCards {
  std::optional<std::string> list;
  std::string called;  // what stands before the list in messages
};

// The indices of the cards that the list selects. Cards are counted as nvidia-smi does.
std::vector<std::size_t> chosen_cards(const Machine& machine,
                                      const VisibleCards& visible,
                                      const Options& options,
                                      std::vector<std::string>& warnings) {
  PresentCards present;
  for (const Card& card : machine.cards)
    present.count = std::max(present.count, static_cast<std::size_t>(card.number) + 1);
  const bool knows_uuids = std::any_of(machine.cards.begin(), machine.cards.end(),
                                       [](const Card& c) { return !c.uuid.empty(); });
  if (knows_uuids) {
    present.uuids.resize(present.count);
    for (const Card& card : machine.cards)
      present.uuids[static_cast<std::size_t>(card.number)] = card.uuid;
  }
  std::vector<std::size_t> numbers;
  if (visible.list) {
    const DeviceList devices = parse_device_list(visible.list, present, visible.called);
    if (!devices.note.empty())
      warnings.push_back(fmt::format("visible: {}; only {} of it {} used", devices.note,
                                     plural(devices.physical.size(), "card"),
                                     devices.physical.size() == 1 ? "is" : "are"));
    numbers = devices.physical;
    if (options.tp_given)  // refuses too few
      devices_of_ranks(visible.list, present, static_cast<std::size_t>(options.tp), visible.called);
  } else {
    for (const Card& card : machine.cards) numbers.push_back(static_cast<std::size_t>(card.number));
  }
  std::vector<std::size_t> chosen;
  for (const std::size_t number : numbers) {
    const auto card = std::find_if(machine.cards.begin(), machine.cards.end(), [&](const Card& c) {
      return static_cast<std::size_t>(c.number) == number;
    });
    if (card == machine.cards.end())
      throw input_error(fmt::format(
          "GPU {}: is visible but has no row in the matrix of topo -m; save the matrix of "
          "the whole machine",
          number));
    chosen.push_back(static_cast<std::size_t>(card - machine.cards.begin()));
  }
  return chosen;
}

void refuse_mig(const Machine& machine) {
  std::vector<std::string> problems;
  for (const Card& card : machine.cards)
    if (card.has_mig)
      problems.push_back(
          fmt::format("GPU {}: is cut into MIG slices. NCCL groups need whole cards: a process "
                      "sees one slice only, and slices "
                      "have no peer access. Switch MIG off with nvidia-smi -i {} -mig 0, or leave "
                      "the card out with --visible",
                      card.number, card.number));
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

}  // namespace

std::vector<ExtraOption> topology_flags(TopologyOptions& topology) {
  return {{"--topo", &topology.topo,
           "file with the output of nvidia-smi topo -m, and of the commands below if it has them; "
           "- reads standard "
           "input (default: run nvidia-smi)"},
          {"--p2p-read", &topology.p2p_read, "file with the output of nvidia-smi topo -p2p r"},
          {"--p2p-write", &topology.p2p_write, "file with the output of nvidia-smi topo -p2p w"},
          {"--nvlink", &topology.nvlink, "file with the output of nvidia-smi nvlink -s, or -L"},
          {"--visible", &topology.visible,
           "use these cards only: a list as in CUDA_VISIBLE_DEVICES, counted as nvidia-smi does "
           "(default: all; where "
           "nvidia-smi is run, CUDA_VISIBLE_DEVICES)"}};
}

Machine read_input(const Options& options, const TopologyOptions& topology) {
  if (topology.visible.size() > 1)
    throw input_error(
        "--visible: is given more than once; write one list, for example --visible 0,1");
  std::vector<TopologyText> texts = read_files(topology);
  VisibleCards visible;
  if (!topology.visible.empty()) visible = {topology.visible[0], "--visible "};
  if (texts.empty()) {
    texts.push_back(ask_nvidia_smi());
    if (!visible.list) visible = {environment("CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES="};
  }
  const Machine machine = read_machine(texts);
  std::vector<std::string> warnings;
  Machine chosen = machine.select(chosen_cards(machine, visible, options, warnings));
  chosen.warnings.insert(chosen.warnings.end(), warnings.begin(), warnings.end());
  refuse_mig(chosen);
  return chosen;
}

Machine read_sample(const std::string& name) {
  const std::filesystem::path file =
      std::filesystem::path("chapters/10_choose_a_layout/samples") / (name + ".txt");
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  for (std::filesystem::path folder = program.parent_path();; folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / file)) {
      TopologyText text = read_text((folder / file).string(), Role::any);
      text.name = name + ".txt";  // the same on every machine
      return read_machine({text});
    }
    if (folder == folder.root_path()) break;
  }
  throw input_error(fmt::format(
      "{}: not found beside or above {}; read a file of yours with topology --topo FILE",
      file.string(), program.string()));
}

}  // namespace tp

#include "common/core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

constexpr std::int64_t kMaxRanks = 256;

bool is_one_of(const std::string& value, const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::string fault_list(const ChapterSpec& spec) {
  std::string text;
  for (const Fault& fault : spec.faults)
    text += fmt::format("\n  {:<31} {}", fault.name, fault.description);
  return text;
}

// Reads a whole number or a decimal fraction, strictly: all of the text, in decimal, in range.
template <class Number>
Number parse_number(const std::string& flag, const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && next == end) return value;
  if (error == std::errc::result_out_of_range && next == end)
    throw input_error(fmt::format("{} {}: is too large a number", flag, text));
  const char* kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  throw input_error(fmt::format("{} {}: must be {}", flag, text, kind));
}

// Adds an option with a number; `target` is the number or an optional of it.
template <class Number, class Target>
CLI::Option* add_number(CLI::App& app,
                        const std::string& flags,
                        Target& target,
                        const std::string& help) {
  const std::string flag = flags.substr(0, flags.find(','));
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [flag, &target](const std::string& text) { target = parse_number<Number>(flag, text); },
      help);
  option->type_name(std::is_integral_v<Number> ? "INT" : "NUMBER");
  if constexpr (std::is_same_v<Number, Target>) option->default_str(fmt::format("{}", target));
  return option;
}

// Refuses values that no chapter can run with.
void check_values(const Options& options, const ChapterSpec& spec) {
  std::vector<std::string> problems;
  const auto must_be_one_of = [&](const char* flag, const std::string& value,
                                  std::vector<std::string> allowed) {
    if (!is_one_of(value, allowed))
      problems.push_back(
          fmt::format("{} {}: must be one of {}", flag, value, fmt::join(allowed, ", ")));
  };
  must_be_one_of("--device", options.device, {"auto", "cpu", "cuda"});
  must_be_one_of("--comm", options.comm, {"auto", "threads", "nccl", "peer", "mpi"});
  if (!options.dtype.empty()) must_be_one_of("--dtype", options.dtype, spec.dtypes);
  if (!options.kv_dtype.empty()) must_be_one_of("--kv-dtype", options.kv_dtype, spec.kv_dtypes);
  if (!options.math.empty()) must_be_one_of("--math", options.math, {"f32"});
  if (options.tp < 1 || options.tp > kMaxRanks)
    problems.push_back(fmt::format("--tp {}: must be 1 to {} ranks", options.tp, kMaxRanks));
  if (options.seed < 0)
    problems.push_back(fmt::format("--seed {}: must be 0 or above", options.seed));
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s) || options.timeout_s > 86400)
    problems.push_back(fmt::format("--timeout-s {}: must be above 0 and at most 86400 seconds",
                                   options.timeout_s));
  if (!options.report_file.empty() && options.report_file == options.json_file)
    problems.push_back(fmt::format("--report {}: is the file of --json too; give it another name",
                                   options.report_file));
  // In millionths it has to be more than none.
  if (!(options.gpu_memory_utilization >= 1e-6 && options.gpu_memory_utilization <= 1))
    problems.push_back(fmt::format("--gpu-memory-utilization {}: must be 0.000001 to 1",
                                   options.gpu_memory_utilization));
  const bool known_fault =
      std::any_of(spec.faults.begin(), spec.faults.end(),
                  [&](const Fault& fault) { return fault.name == options.fault; });
  if (!options.fault.empty() && !known_fault)
    problems.push_back(fmt::format("--fault {}: chapter {} knows{}", options.fault, spec.number,
                                   fault_list(spec)));
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

// Whether a file that is to be written is, or lies in, what an option names to be read.
bool would_overwrite(const std::string& output, const std::string& read) {
  namespace fs = std::filesystem;
  std::error_code none;  // what is not there cannot be overwritten
  if (output.empty() || !fs::exists(output, none) || !fs::exists(read, none)) return false;
  if (fs::equivalent(output, read, none)) return true;
  const fs::path folder = fs::path(output).has_parent_path() ? fs::path(output).parent_path() : ".";
  return fs::is_directory(read, none) && fs::equivalent(folder, read, none);
}

// What the words of the command line are worth: an empty one is usually a shell variable that is not
// set, and results must not replace what they were made from.
void check_texts(const CLI::App& app, const Options& options, const ChapterSpec& spec) {
  std::vector<std::string> problems;
  for (const CLI::Option* option : app.get_options())
    if (option->count() == 1 && option->results().front().empty() &&
        option->get_items_expected() > 0)
      problems.push_back(
          fmt::format("{}: is empty; leave the option out or give it a value", option->get_name()));
  for (const ExtraOption& extra : spec.extra_options) {
    const auto* const* text = std::get_if<std::string*>(&extra.target);
    if (text == nullptr || (*text)->empty()) continue;
    for (const auto& [flag, output] :
         {std::pair("--json", options.json_file), std::pair("--report", options.report_file)})
      if (would_overwrite(output, **text))
        problems.push_back(fmt::format("{} {}: would replace what {} {} reads; name another file",
                                       flag, output, extra.flags, **text));
  }
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

// "--help" shows the lesson first, an example and the faults last.
void describe(CLI::App& app, const ChapterSpec& spec) {
  app.name(spec.subcommand.empty() ? spec.binary() : spec.binary() + " " + spec.subcommand);
  app.description(fmt::format("Chapter {}: {}", spec.number, spec.lesson));
  app.footer(fmt::format(
      "Example:\n  {}\n\nFaults (mistakes made on purpose, to see which check catches them):{}",
      spec.example, fault_list(spec)));
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const ChapterSpec& spec) {
  Options options;
  CLI::App app;
  describe(app, spec);
  app.add_option("--device", options.device, "where the tensors live: auto, cpu, cuda")
      ->capture_default_str();
  app.add_option("--comm", options.comm, "how ranks talk: auto, threads, nccl, peer, mpi")
      ->capture_default_str();
  CLI::Option* tp =
      add_number<std::int64_t>(app, "--tp,--tensor-parallel-size", options.tp, "number of ranks");
  app.add_flag("--uneven", options.uneven, "allow sizes that the number of ranks does not divide");
  app.add_option("--dtype", options.dtype,
                 fmt::format("storage of weights: {} (default: {})", fmt::join(spec.dtypes, ", "),
                             spec.default_dtype));
  app.add_option("--kv-dtype", options.kv_dtype,
                 fmt::format("storage of the KV cache: {}", fmt::join(spec.kv_dtypes, ", ")));
  app.add_option("--math", options.math, "type of activations: f32");
  add_number<double>(app, "--gpu-memory-utilization", options.gpu_memory_utilization,
                     "part of a GPU's memory that its ranks together may use");
  app.add_flag("--nccl-info", options.nccl_info,
               "tell which NCCL this is and what its environment variables do, and stop");
  add_number<std::int64_t>(app, "--seed", options.seed, "of random inputs and of sampling");
  add_number<double>(app, "--timeout-s", options.timeout_s, "seconds a rank waits for another one");
  app.add_option("--json", options.json_file, "also write the results to this file, as JSON");
  app.add_option("--report", options.report_file,
                 "also write the results to this file, as one HTML page with pictures");
  app.add_option("--fault", options.fault, "make this mistake on purpose (see below)");
  for (const ExtraOption& extra : spec.extra_options) {
    std::visit(
        [&](auto* target) {
          using Target = std::remove_pointer_t<decltype(target)>;
          if constexpr (std::is_same_v<Target, bool>)
            app.add_flag(extra.flags, *target, extra.help);
          else if constexpr (std::is_same_v<Target, std::vector<std::string>>)
            app.add_option(extra.flags, *target, extra.help)
                ->expected(1)
                ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
          else if constexpr (std::is_same_v<Target, std::string>)
            app.add_option(extra.flags, *target, extra.help)->capture_default_str();
          else if constexpr (std::is_same_v<Target, std::optional<double>>)
            add_number<double>(app, extra.flags, *target, extra.help);
          else
            add_number<std::int64_t>(app, extra.flags, *target, extra.help);
        },
        extra.target);
  }
  for (const std::string& unused : spec.unused_options) app.get_option(unused)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    throw input_error(fmt::format("{}; {} --help lists the options", e.what(), spec.binary()));
  }
  options.tp_given = tp->count() > 0;
  check_texts(app, options, spec);
  check_values(options, spec);
  return options;
}

}  // namespace tp

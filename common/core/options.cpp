#include "common/core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

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
  if (!options.dtype.empty()) must_be_one_of("--dtype", options.dtype, {"f32", "bf16"});
  if (!options.kv_dtype.empty()) must_be_one_of("--kv-dtype", options.kv_dtype, {"f32"});
  if (!options.math.empty()) must_be_one_of("--math", options.math, {"f32"});
  if (options.tp < 1 || options.tp > kMaxRanks)
    problems.push_back(fmt::format("--tp {}: must be 1 to {} ranks", options.tp, kMaxRanks));
  if (options.seed < 0)
    problems.push_back(fmt::format("--seed {}: must be 0 or above", options.seed));
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s) || options.timeout_s > 86400)
    problems.push_back(fmt::format("--timeout-s {}: must be above 0 and at most 86400 seconds",
                                   options.timeout_s));
  const bool known_fault =
      std::any_of(spec.faults.begin(), spec.faults.end(),
                  [&](const Fault& fault) { return fault.name == options.fault; });
  if (!options.fault.empty() && !known_fault)
    problems.push_back(fmt::format("--fault {}: chapter {} knows{}", options.fault, spec.number,
                                   fault_list(spec)));
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));

  if (options.device == "cuda")
    throw Error(ErrorKind::device,
                "--device cuda: no GPU visible to this program (it was built without a CUDA "
                "device); use --device cpu");
  if (is_one_of(options.comm, {"nccl", "peer", "mpi"}))
    throw Error(ErrorKind::device,
                fmt::format("--comm {}: this program was built without it; use --comm threads",
                            options.comm));
}

// "--help" shows the lesson first, an example and the faults last.
void describe(CLI::App& app, const ChapterSpec& spec) {
  app.name(spec.binary());
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
                 "storage of weights: f32, bf16 (default: " + spec.default_dtype + ")");
  app.add_option("--kv-dtype", options.kv_dtype, "storage of the KV cache: f32");
  app.add_option("--math", options.math, "type of activations: f32");
  add_number<std::int64_t>(app, "--seed", options.seed, "of random inputs and of sampling");
  add_number<double>(app, "--timeout-s", options.timeout_s, "seconds a rank waits for another one");
  app.add_option("--json", options.json_file, "also write the results to this file, as JSON");
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    throw input_error(fmt::format("{}; {} --help lists the options", e.what(), spec.binary()));
  }
  options.tp_given = tp->count() > 0;
  check_values(options, spec);
  return options;
}

}  // namespace tp

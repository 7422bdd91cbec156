#include "common/core/chapter.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/output_file.h"
#include "common/core/platform.h"

namespace tp {

namespace {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::input:
      return 2;
    case ErrorKind::rank:
      return 3;
    case ErrorKind::device:
      return 77;
  }
  return 3;
}

void print_error(const char* message) {
  std::fflush(stdout);
  // Standard error may be closed: then nobody hears of it, but the exit code stays right.
  std::fputs(fmt::format("error: {}\n", message).c_str(), stderr);
}

// Ranks on the CPU have no kernels for f16 weights, nor for KV caches of 16 bits.
void check_dtypes(const Options& options) {
  if (options.device != "cpu") return;
  std::vector<std::string> problems;
  if (options.dtype == "f16")
    problems.push_back("--dtype f16: the CPU computes with f32 and bf16; f16 needs --device cuda");
  if (!options.kv_dtype.empty() && options.kv_dtype != "f32")
    problems.push_back(
        fmt::format("--kv-dtype {}: the KV cache of the CPU is f32; others need --device cuda",
                    options.kv_dtype));
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
}

int run(int argc,
        char** argv,
        const ChapterSpec& spec,
        const std::function<void(const Options&, Report&)>& lesson) {
  std::optional<Options> options = parse_options(argc, argv, spec);
  if (!options) return 0;
  if (options->nccl_info) {
    fmt::print("{}", nccl_info());
    return 0;
  }
  if (options->comm == "mpi")
    throw Error(ErrorKind::device,
                "--comm mpi: this version has no ranks on several hosts; use --comm auto");
  // Who only reads and plans wakes no GPU, unless it is asked for.
  if (spec.what_runs && options->device == "auto") options->device = "cpu";
  const Platform platform = choose_platform(*options);
  options->device = platform.device;
  options->comm = platform.comm;
  if (!spec.what_runs) check_dtypes(*options);
  std::unique_ptr<OutputFile> json, page;
  if (!options->json_file.empty()) json = std::make_unique<OutputFile>(options->json_file);
  if (!options->report_file.empty()) page = std::make_unique<OutputFile>(options->report_file);

  Report report;
  report.line(fmt::format("Chapter {}: {}", spec.number, spec.name));
  report.line(spec.lesson);
  const std::string dtype = options->dtype.empty() ? spec.default_dtype : options->dtype;
  report.line(spec.what_runs ? spec.what_runs(*options)
                             : fmt::format("device {}, weights {}, activations f32, seed {}",
                                           platform.text, dtype, options->seed));
  if (!spec.what_runs) {
    report.record("/device", platform.device);
    report.record("/comm", platform.comm);
    report.record("/tp", options->tp);
  }
  report.record("/dtype", dtype);
  report.record("/chapter", spec.number + "_" + spec.name);
  report.record("/seed", options->seed);
  if (!options->fault.empty()) {
    report.line(fmt::format("FAULT {} is switched on: the figures below are meant to be wrong",
                            options->fault));
    report.record("/fault", options->fault);
  }
  lesson(*options, report);
  const int code = report.finish();
  if (json) json->commit(report.to_json());
  if (page) page->commit(report.to_html(fmt::format("Chapter {}: {}", spec.number, spec.name)));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw input_error("standard output: cannot be written");
  return code;
}

}  // namespace

int chapter_main(int argc,
                 char** argv,
                 const ChapterSpec& spec,
                 const std::function<void(const Options&, Report&)>& lesson) {
  try {
    return run(argc, argv, spec, lesson);
  } catch (const Error& e) {
    print_error(e.what());
    return exit_code(e.kind());
  } catch (const std::exception& e) {
    print_error(e.what());  // the machine's: no memory, standard output is closed
    return exit_code(ErrorKind::input);
  }
}

}  // namespace tp

#include "common/core/chapter.h"

#include <cstdio>
#include <exception>
#include <memory>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/output_file.h"

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

int run(int argc,
        char** argv,
        const ChapterSpec& spec,
        const std::function<void(const Options&, Report&)>& lesson) {
  const std::optional<Options> options = parse_options(argc, argv, spec);
  if (!options) return 0;
  std::unique_ptr<OutputFile> json;
  if (!options->json_file.empty()) json = std::make_unique<OutputFile>(options->json_file);

  Report report;
  report.line(fmt::format("Chapter {}: {}", spec.number, spec.name));
  report.line(spec.lesson);
  const std::string dtype = options->dtype.empty() ? spec.default_dtype : options->dtype;
  report.line(fmt::format("device cpu, {} rank{} as thread{}, weights {}, activations f32, seed {}",
                          options->tp, options->tp == 1 ? "" : "s", options->tp == 1 ? "" : "s",
                          dtype, options->seed));
  report.record("/device", "cpu");
  report.record("/tp", options->tp);
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

#include "common/core/chapter.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/core/captured_output.h"
#include "tests/temp_folder.h"

using namespace tp;

namespace {

struct Run {
  int code;
  std::string out;
  std::string error;
};

Run run_chapter(std::vector<std::string> arguments,
                const std::function<void(const Options&, Report&)>& lesson) {
  ChapterSpec spec;
  spec.number = "01";
  spec.name = "test";
  spec.faults = {{"mistake", "made on purpose"}};
  spec.kv_dtypes = {"f32", "bf16"};
  arguments.insert(arguments.begin(), spec.binary());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const CapturedOutput out(stdout), error(stderr);
  const int code = chapter_main(static_cast<int>(arguments.size()), argv.data(), spec, lesson);
  return {code, out.text(), error.text()};
}

void passes(const Options&, Report& report) {
  report.expect("one", 1, 1);
}

void fails(const Options&, Report& report) {
  report.expect("one", 2, 1);
}

}  // namespace

TEST_CASE("the exit code says how a chapter ended") {
  CHECK(run_chapter({}, passes).code == 0);
  CHECK(run_chapter({}, fails).code == 1);
  CHECK(run_chapter({"--tp", "0"}, passes).code == 2);
  CHECK(run_chapter({}, [](auto&, auto&) { throw input_error("bad file"); }).code == 2);
  CHECK(run_chapter({}, [](auto&, auto&) { throw Error(ErrorKind::rank, "lost"); }).code == 3);
  CHECK(run_chapter({}, [](auto&, auto&) { throw std::runtime_error("unknown"); }).code == 2);
  CHECK(run_chapter({"--device", "cuda"}, passes).code == 77);
  CHECK(run_chapter({"--help"}, fails).code == 0);
}

TEST_CASE("a device or communicator that this program lacks is an error of its own kind") {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--device", "cuda"},
                                                    {"--comm", "nccl"},
                                                    {"--comm", "peer"},
                                                    {"--comm", "mpi"}}) {
    const Run run = run_chapter(arguments, passes);
    CHECK(run.code == 77);
    CHECK_THAT(run.error, ContainsSubstring(arguments[0] + " " + arguments[1]));
    CHECK(run.out.empty());
  }
  CHECK(run_chapter({"--nccl-info"}, passes).code == 77);
}

TEST_CASE("dtypes for GPUs are refused on the CPU, all at once") {
  const Run run = run_chapter({"--dtype", "f16", "--kv-dtype", "bf16"}, passes);
  CHECK(run.code == 2);
  CHECK_THAT(run.error, ContainsSubstring("--dtype f16"));
  CHECK_THAT(run.error, ContainsSubstring("--kv-dtype bf16"));
  CHECK(run_chapter({"--device", "cpu", "--comm", "peer"}, passes).code == 77);
}

TEST_CASE("an error goes to standard error and a verdict to standard output") {
  const Run refused = run_chapter({}, [](auto&, auto&) { throw input_error("bad file"); });
  CHECK(refused.error == "error: bad file\n");
  CHECK_THAT(refused.out, !ContainsSubstring("PASS"));
  const Run passed = run_chapter({}, passes);
  CHECK(passed.error.empty());
  CHECK(passed.out.ends_with("\nPASS\n"));
}

TEST_CASE("the first lines say what runs and a fault is announced") {
  const Run run = run_chapter({"--tp", "3", "--seed", "9", "--fault", "mistake"}, passes);
  CHECK_THAT(run.out, ContainsSubstring("Chapter 01: test"));
  CHECK_THAT(run.out, ContainsSubstring("3 ranks"));
  CHECK_THAT(run.out, ContainsSubstring("seed 9"));
  CHECK_THAT(run.out, ContainsSubstring("FAULT mistake"));
  CHECK_THAT(run_chapter({}, passes).out, !ContainsSubstring("FAULT"));
}

TEST_CASE("a chapter without ranks says itself what runs") {
  ChapterSpec spec;
  spec.number = "01";
  spec.name = "test";
  spec.what_runs = [](const Options& options) { return "reads " + options.device; };
  std::string program = spec.binary();
  char* argv[] = {program.data(), nullptr};
  const CapturedOutput out(stdout);
  CHECK(chapter_main(1, argv, spec, passes) == 0);
  CHECK_THAT(out.text(), ContainsSubstring("\nreads cpu\n") && !ContainsSubstring("ranks"));
}

TEST_CASE("the JSON file is written also for a failed check but not for an error") {
  const TempFolder folder;
  const std::string path = folder.path() / "out.json";
  CHECK(run_chapter({"--json", path}, [](auto&, auto&) { throw input_error("bad"); }).code == 2);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(run_chapter({"--json", path, "--tp", "4"}, fails).code == 1);
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  CHECK(json.at("result") == "FAIL");
  CHECK(json.at("tp") == 4);
  CHECK(json.at("chapter") == "01_test");
}

TEST_CASE("a JSON path that cannot be written is refused before the work") {
  bool worked = false;
  const Run run =
      run_chapter({"--json", "/no/such/folder/out.json"}, [&](auto&, auto&) { worked = true; });
  CHECK(run.code == 2);
  CHECK_FALSE(worked);
}

TEST_CASE("the page is written also for a failed check but not for an error") {
  const TempFolder folder;
  const std::string path = folder.path() / "out.html";
  CHECK(run_chapter({"--report", path}, [](auto&, auto&) { throw input_error("bad"); }).code == 2);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(run_chapter({"--report", path}, fails).code == 1);
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  CHECK_THAT(page, ContainsSubstring("<title>Chapter 01: test</title>"));
  CHECK_THAT(page, ContainsSubstring("FAIL (1 of 1 checks)"));
  CHECK(run_chapter({"--report", "/no/such/folder/out.html"}, passes).code == 2);
  const Run same = run_chapter({"--report", path, "--json", path}, passes);
  CHECK(same.code == 2);
  CHECK_THAT(same.error, ContainsSubstring("is the file of --json too"));
}

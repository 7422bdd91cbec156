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

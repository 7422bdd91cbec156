#include "common/core/options.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/core/captured_output.h"
#include "tests/temp_folder.h"

using namespace tp;

namespace {

ChapterSpec spec() {
  ChapterSpec chapter;
  chapter.number = "01";
  chapter.name = "column_row_split";
  chapter.lesson = "The lesson.";
  chapter.example = "ch01_column_row_split --tp 4";
  chapter.faults = {{"skip_all_reduce", "nobody adds"}};
  return chapter;
}

std::optional<Options> parse(std::vector<std::string> arguments,
                             const ChapterSpec& chapter = spec()) {
  arguments.insert(arguments.begin(), chapter.binary());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return parse_options(static_cast<int>(arguments.size()), argv.data(), chapter);
}

// The error of a command line that is refused.
Error refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const Error& e) {
    return e;
  }
  FAIL("accepted");
  return input_error("");
}

}  // namespace

TEST_CASE("without arguments the defaults hold") {
  const Options options = parse({}).value();
  CHECK(options.device == "auto");
  CHECK(options.tp == 2);
  CHECK_FALSE(options.tp_given);
  CHECK_FALSE(options.uneven);
  CHECK(options.dtype.empty());
  CHECK(options.seed == 1);
  CHECK(options.timeout_s == 30);
  CHECK(options.fault.empty());
}

TEST_CASE("every option is taken") {
  const Options options = parse({"--device",    "cpu",     "--comm",
                                 "threads",     "--tp",    "8",
                                 "--uneven",    "--dtype", "bf16",
                                 "--kv-dtype",  "f32",     "--math",
                                 "f32",         "--seed",  "42",
                                 "--timeout-s", "0.5",     "--json",
                                 "out.json",    "--fault", "skip_all_reduce"})
                              .value();
  CHECK(options.device == "cpu");
  CHECK(options.comm == "threads");
  CHECK(options.tp == 8);
  CHECK(options.tp_given);
  CHECK(options.uneven);
  CHECK(options.dtype == "bf16");
  CHECK(options.kv_dtype == "f32");
  CHECK(options.math == "f32");
  CHECK(options.seed == 42);
  CHECK(options.timeout_s == 0.5);
  CHECK(options.json_file == "out.json");
  CHECK(options.fault == "skip_all_reduce");
  CHECK(parse({"--tensor-parallel-size", "3"}).value().tp == 3);
}

TEST_CASE("a bad value is refused by name") {
  const std::vector<std::vector<std::string>> command_lines = {{"--tp", "0"},
                                                               {"--tp", "-2"},
                                                               {"--tp", "257"},
                                                               {"--tp", "two"},
                                                               {"--tp", "2.5"},
                                                               {"--device", "tpu"},
                                                               {"--comm", "carrier"},
                                                               {"--dtype", "f64"},
                                                               {"--kv-dtype", "fp8"},
                                                               {"--math", "f64"},
                                                               {"--timeout-s", "0"},
                                                               {"--timeout-s", "-1"},
                                                               {"--timeout-s", "nan"},
                                                               {"--timeout-s", "inf"},
                                                               {"--timeout-s", "1e99"},
                                                               {"--seed", "-1"},
                                                               {"--seed", "x"},
                                                               {"--fault", "no_such"},
                                                               {"--gpu-memory-utilization", "0"},
                                                               {"--gpu-memory-utilization", "1.5"}};
  for (const auto& arguments : command_lines) {
    INFO(arguments[0] << " " << arguments[1]);
    const Error error = refusal(arguments);
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), ContainsSubstring(arguments[0]));
  }
}

TEST_CASE("all bad values are named at once") {
  const std::string text = refusal({"--tp", "0", "--dtype", "f64", "--timeout-s", "-3"}).what();
  CHECK_THAT(text, ContainsSubstring("--tp 0"));
  CHECK_THAT(text, ContainsSubstring("--dtype f64"));
  CHECK_THAT(text, ContainsSubstring("f32, bf16"));
  CHECK_THAT(text, ContainsSubstring("--timeout-s -3"));
}

TEST_CASE("an unknown option and a missing value are refused with the way to help") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--reprot", "x"}, {"stray"}, {"--tp"}}) {
    const Error error = refusal(arguments);
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), ContainsSubstring(arguments[0]));
    CHECK_THAT(error.what(), ContainsSubstring("ch01_column_row_split --help"));
  }
}

TEST_CASE("an empty text is refused by the name of its option") {
  const std::string text = refusal({"--json", "", "--device", ""}).what();
  CHECK_THAT(text, ContainsSubstring("--json: is empty"));
  CHECK_THAT(text, ContainsSubstring("--device: is empty"));
}

TEST_CASE("results never replace the files that they are made from") {
  const TempFolder folder;
  const std::string model = folder.path(), config = folder.path() / "config.json";
  std::ofstream(config) << "{}";
  std::string read;
  ChapterSpec reader = spec();
  reader.extra_options.push_back({"--model", &read, "what is read"});
  for (const std::string& given : {model, config})
    for (const char* flag : {"--json", "--report"})
      CHECK_THROWS_WITH(parse({"--model", given, flag, config}, reader),
                        ContainsSubstring(flag) && ContainsSubstring("would replace what --model"));
  CHECK_NOTHROW(parse({"--model", model, "--json", model + "/result.json"}, reader));
}

TEST_CASE("an unknown fault is answered with those that the chapter knows") {
  const std::string text = refusal({"--fault", "no_such"}).what();
  CHECK_THAT(text, ContainsSubstring("no_such"));
  CHECK_THAT(text, ContainsSubstring("skip_all_reduce"));
}

TEST_CASE("help shows the lesson and the example and the faults") {
  const CapturedOutput out(stdout);
  CHECK_FALSE(parse({"--help"}).has_value());
  CHECK_THAT(out.text(), ContainsSubstring("The lesson."));
  CHECK_THAT(out.text(), ContainsSubstring("ch01_column_row_split --tp 4"));
  CHECK_THAT(out.text(), ContainsSubstring("skip_all_reduce"));
  CHECK_THAT(out.text(), ContainsSubstring("--timeout-s"));
}

TEST_CASE("options of one chapter reach their targets") {
  ChapterSpec chapter = spec();
  bool flag = false;
  std::int64_t count = 16;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::vector<std::string> prompts;
  chapter.extra_options = {{"--flag", &flag, ""},
                           {"--count", &count, ""},
                           {"--temperature", &temperature, ""},
                           {"--top-k", &top_k, ""},
                           {"--prompt", &prompts, ""}};
  REQUIRE(parse({"--flag", "--temperature", "0.5", "--prompt", "one", "--prompt", "two words"},
                chapter));
  CHECK(flag);
  CHECK(count == 16);
  CHECK(temperature == 0.5);
  CHECK_FALSE(top_k.has_value());
  CHECK(prompts == std::vector<std::string>{"one", "two words"});
}

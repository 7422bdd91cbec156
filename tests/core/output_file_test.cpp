#include "common/core/output_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace tp;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t files_in(const TempFolder& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder.path()), {}));
}

// While it lives, no file can grow beyond a number of bytes, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*handler_)(int);
};

bool commit_fails_on_a_full_disk(const OutputFile& file, const std::string& text) {
  const FullDisk disk(100);
  try {
    file.commit(text);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::input;
  }
  return false;
}

}  // namespace

TEST_CASE("a committed text is the whole file and nothing else is left") {
  const TempFolder folder;
  const fs::path path = folder.write("out.json", "an older and longer text");
  const OutputFile file(path);
  CHECK(content(path) == "an older and longer text");
  file.commit("new");
  CHECK(content(path) == "new");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("without commit nothing is left behind") {
  const TempFolder folder;
  { const OutputFile file(folder.path() / "out.json"); }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("a path that cannot be written is refused at once and named") {
  const TempFolder folder;
  const fs::path file = folder.write("file", "text");
  for (const fs::path& path :
       {folder.path() / "no" / "such" / "folder.json", file / "below.json", folder.path()}) {
    try {
      const OutputFile out(path);
      FAIL(path << " was accepted");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      CHECK_THAT(e.what(), ContainsSubstring(path.string()));
    }
  }
  CHECK(content(file) == "text");
}

TEST_CASE("the target is unchanged when commit fails") {
  const TempFolder folder;
  const fs::path path = folder.write("out.json", "old");
  const OutputFile file(path);
  CHECK(commit_fails_on_a_full_disk(file, std::string(1000, 'x')));
  CHECK(content(path) == "old");
  CHECK(files_in(folder) == 1);
  file.commit("new");  // the disk has room again
  CHECK(content(path) == "new");
}

TEST_CASE("a target that did not exist does not appear when commit fails") {
  const TempFolder folder;
  const OutputFile file(folder.path() / "out.json");
  CHECK(commit_fails_on_a_full_disk(file, std::string(1000, 'x')));
  CHECK(files_in(folder) == 0);
}

TEST_CASE("a special file is written in place and stays what it is") {
  const TempFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  OutputFile(pipe).commit("text");
  char received[16] = {};
  CHECK(::read(reader, received, sizeof received) == 4);
  CHECK(std::string(received) == "text");
  ::close(reader);
  REQUIRE(fs::is_fifo(pipe));
  REQUIRE(files_in(folder) == 1);

  OutputFile("/dev/null").commit("text");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_THROWS_AS(OutputFile("/dev/full").commit("text"), Error);
  CHECK(fs::is_character_file("/dev/full"));
}

// Runs a target on its corpus without a fuzzer: each file as it is, cut off, and with flipped bits.
//
// usage: fuzz_replay TARGET FOLDER
//
// The changes are the same in every run, as many of them as fit into a second. The exit code is 0 if
// all was read or refused, 2 for a wrong command line. A crash is a crash.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "common/core/random.h"
#include "tests/fuzz/targets.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;

std::vector<Bytes> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> files;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

// Change number `i`: a shorter file, one to four flipped bits, or a byte of another place.
Bytes changed(Bytes bytes, std::uint64_t i) {
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t count) {
    return static_cast<std::size_t>(tp::random_bits(i, draws++) % count);
  };
  if (bytes.empty()) return bytes;
  switch (i % 3) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;
    case 1:
      for (std::size_t flips = 1 + below(4); flips > 0; --flips)
        bytes[below(bytes.size())] ^= static_cast<std::uint8_t>(1 << below(8));
      break;
    default:
      bytes[below(bytes.size())] = bytes[below(bytes.size())];
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const auto* const target =
      std::find_if(tp::kFuzzTargets.begin(), tp::kFuzzTargets.end(),
                   [&](const tp::FuzzTarget& t) { return argc == 3 && t.name == argv[1]; });
  if (target == tp::kFuzzTargets.end()) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET FOLDER\n");
    return 2;
  }
  const std::vector<Bytes> corpus = read_corpus(argv[2]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: holds no files\n", argv[2]);
    return 2;
  }
  for (const Bytes& bytes : corpus) target->read(bytes);
  constexpr std::chrono::seconds kBudget{1};
  const Clock::time_point start = Clock::now();
  std::uint64_t changes = 0;
  for (; Clock::now() - start < kBudget; ++changes)
    for (const Bytes& bytes : corpus) target->read(changed(bytes, changes));
  std::printf("%s: %zu files, and %llu changes of each\n", argv[1], corpus.size(),
              static_cast<unsigned long long>(changes));
}

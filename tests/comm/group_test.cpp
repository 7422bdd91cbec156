#include "common/comm/group.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "common/core/random.h"
#include "tests/catch.h"
#include "tests/comm/on_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::uint64_t seed, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random_bits(seed, i));
  return bytes;
}

// What every rank gets from body(group).
template <class Body>
auto results_of(int ranks, const Body& body) {
  std::vector<decltype(body(std::declval<Group&>()))> results(static_cast<std::size_t>(ranks));
  const auto ends = on_ranks(ranks, 30s, [&](Communicator&, Group& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  });
  REQUIRE(errors_of(ends) == "");
  return results;
}

}  // namespace

TEST_CASE("exchange gives every rank the records of all in rank order") {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t size : {0u, 1u, 65535u, 65536u, 65537u, 200000u}) {
      INFO(ranks << " ranks, " << size << " bytes");
      const auto results = results_of(ranks, [size](Group& group) {
        const Bytes mine = random_bytes(static_cast<std::uint64_t>(group.rank()), size);
        const auto all = group.exchange(mine);
        return Bytes(all.begin(), all.end());
      });
      Bytes expected;
      for (int r = 0; r < ranks; ++r) {
        const Bytes record = random_bytes(static_cast<std::uint64_t>(r), size);
        expected.insert(expected.end(), record.begin(), record.end());
      }
      for (const Bytes& result : results) CHECK((result == expected));
    }
  }
}

TEST_CASE("exchanges of changing sizes follow each other") {
  const auto results = results_of(4, [](Group& group) {
    int mistakes = 0;
    for (std::uint64_t round = 0; round < 300; ++round) {
      const auto size = static_cast<std::size_t>(random_bits(5, round) % 200);
      const auto seed = [&](int rank) { return round * 4 + static_cast<std::uint64_t>(rank); };
      Bytes mine = random_bytes(seed(group.rank()), size);
      const auto all = group.exchange(mine);
      mine.assign(size, std::byte{0xee});  // must not matter to the others
      for (int r = 0; r < 4; ++r) {
        const auto theirs = all.subspan(static_cast<std::size_t>(r) * size, size);
        mistakes += Bytes(theirs.begin(), theirs.end()) == random_bytes(seed(r), size) ? 0 : 1;
      }
    }
    return mistakes;
  });
  for (const int mistakes : results) CHECK(mistakes == 0);
}

TEST_CASE("broadcast replaces the bytes of every rank by those of the root") {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t size : {0u, 1u, 65536u, 65537u, (1u << 20) + 1}) {
      for (const int root : {0, ranks - 1}) {
        INFO(ranks << " ranks, " << size << " bytes, root " << root);
        const auto results = results_of(ranks, [size, root](Group& group) {
          // Before the call the others hold less or more than the root.
          Bytes bytes(static_cast<std::size_t>(group.rank()) * 7, std::byte{0xee});
          if (group.rank() == root) bytes = random_bytes(1, size);
          group.broadcast(bytes, root);
          return bytes;
        });
        for (const Bytes& result : results) CHECK((result == random_bytes(1, size)));
      }
    }
  }
}

TEST_CASE("broadcasts at once after each other do not overwrite each other") {
  const auto results = results_of(3, [](Group& group) {
    int mistakes = 0;
    for (std::uint64_t round = 0; round < 200; ++round) {
      Bytes first, second;
      if (group.rank() == 0) first = random_bytes(2 * round, 100 + round);
      if (group.rank() == 0) second = random_bytes(2 * round + 1, 300 - round);
      group.broadcast(first, 0);
      group.broadcast(second, 0);
      mistakes += first == random_bytes(2 * round, 100 + round) ? 0 : 1;
      mistakes += second == random_bytes(2 * round + 1, 300 - round) ? 0 : 1;
    }
    return mistakes;
  });
  for (const int mistakes : results) CHECK(mistakes == 0);
}

TEST_CASE("min is the smallest value wherever it is") {
  for (const int ranks : {1, 2, 5, 8}) {
    for (int lowest = 0; lowest < ranks; ++lowest) {
      const auto results = results_of(ranks, [lowest](Group& group) {
        return group.min(group.rank() == lowest ? -7 : group.rank());
      });
      for (const std::int64_t result : results) CHECK(result == -7);
    }
  }
  const auto extremes = results_of(2, [](Group& group) {
    using Limits = std::numeric_limits<std::int64_t>;
    return group.min(group.rank() == 0 ? Limits::max() : Limits::min());
  });
  CHECK(extremes[0] == std::numeric_limits<std::int64_t>::min());
}

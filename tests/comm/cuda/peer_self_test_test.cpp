// What the start-up test says about ways between GPUs that spoil data.
#include "common/comm/cuda/peer_self_test.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "tests/catch.h"
#include "tests/comm/cuda/on_gpu_ranks.h"

using namespace tp;
using namespace tp::cuda;
using namespace std::chrono_literals;

namespace {

using Floats = std::vector<float>;
using Values = std::span<const float>;

// A way between GPUs that does what `spoil` does when data goes from GPU 0 to GPU 2, and is right
// otherwise.
std::vector<PeerTransfer> spoiled(
    const std::function<Floats(Values sent, Values before, const StillWaiting& still_waiting)>&
        spoil) {
  return {{"a test",
           [spoil](GpuPair pair, Values sent, Values before, const StillWaiting& still_waiting) {
             if (pair == GpuPair{0, 2}) return spoil(sent, before, still_waiting);
             return Floats(sent.begin(), sent.end());
           }}};
}

std::vector<std::string> findings(const std::vector<PeerTransfer>& transfers) {
  return peer_self_test({0, 1, 2}, transfers, 60s);
}

Floats copy_of(Values values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("right data between GPUs passes the test") {
  CHECK(findings(spoiled([](Values sent, Values, const StillWaiting&) {
          return copy_of(sent);
        })).empty());
  // One GPU, named once for each rank on it: there is no way to be tested.
  int calls = 0;
  const std::vector<PeerTransfer> counting = {
      {"a test", [&](GpuPair, Values sent, Values, const StillWaiting&) {
         ++calls;
         return copy_of(sent);
       }}};
  CHECK(peer_self_test({0, 0, 0}, counting, 60s).empty());
  CHECK(calls == 0);
  CHECK(peer_self_test({0, 1, 0, 1}, counting, 60s).empty());
  CHECK(calls == 2);
}

TEST_CASE("data that does not arrive is found and its pair named") {
  const auto problems =
      findings(spoiled([](Values, Values before, const StillWaiting&) { return copy_of(before); }));
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0],
             ContainsSubstring("from GPU 0 to GPU 2 by a test") &&
                 ContainsSubstring("element 0 is 2000006, which is the number of GPU 2") &&
                 ContainsSubstring("but 0 was sent") && ContainsSubstring("4096 of 4096"));
}

TEST_CASE("data of another GPU is found") {
  const auto problems = findings(spoiled([](Values sent, Values, const StillWaiting&) {
    Floats swapped = copy_of(sent);  // of GPU 0, as GPU 1 would have sent it
    for (float& value : swapped) value += 1000003;
    return swapped;
  }));
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0],
             ContainsSubstring("from GPU 0 to GPU 2") &&
                 ContainsSubstring("element 0 is 1000003, which is the number of GPU 1"));
}

TEST_CASE("one flipped bit in one element is found") {
  for (const unsigned bit : {0u, 7u, 22u, 23u, 30u, 31u}) {
    const auto problems = findings(spoiled([bit](Values sent, Values, const StillWaiting&) {
      Floats flipped = copy_of(sent);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &flipped[1000], sizeof bits);
      bits ^= 1u << bit;
      std::memcpy(&flipped[1000], &bits, sizeof bits);
      return flipped;
    }));
    INFO("bit " << bit);
    REQUIRE(problems.size() == 1);
    CHECK_THAT(problems[0], ContainsSubstring("from GPU 0 to GPU 2") &&
                                ContainsSubstring("element 1000 is") &&
                                ContainsSubstring("but 1000 was sent (1 of 4096 are wrong)"));
  }
}

TEST_CASE("data that is lost in part is found") {
  const auto problems = findings(spoiled([](Values sent, Values before, const StillWaiting&) {
    Floats part = copy_of(sent);
    std::copy(before.begin() + 4000, before.end(), part.begin() + 4000);
    return part;
  }));
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], ContainsSubstring("element 4000 is 2004006") &&
                              ContainsSubstring("but 4000 was sent (96 of 4096 are wrong)"));
}

TEST_CASE("a transfer that never ends is given up after the time-out") {
  const auto start = std::chrono::steady_clock::now();
  const auto problems =
      peer_self_test({0, 1, 2}, spoiled([](Values sent, Values, const StillWaiting& still_waiting) {
                       for (;;) {
                         still_waiting();
                         std::this_thread::yield();
                       }
                       return copy_of(sent);
                     }),
                     200ms);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0] == "from GPU 0 to GPU 2 by a test: not there after 0.2 s");
}

TEST_CASE("all pairs that are wrong are named") {
  const std::vector<PeerTransfer> nothing_arrives = {
      {"a test",
       [](GpuPair, Values, Values before, const StillWaiting&) { return copy_of(before); }}};
  CHECK(peer_self_test({0, 1, 2}, nothing_arrives, 60s).size() == 6);
}

TEST_CASE("the GPUs of this machine pass the test") {
  if (!runs_here({"GPUs", false, {}, false}, 2)) return;
  for (const GpuPair pair : pairs_of({0, 1})) {
    if (!can_read(pair)) return;
    open_access(pair);
  }
  CHECK(peer_self_test({0, 1}, peer_transfers(), 10s).empty());
}

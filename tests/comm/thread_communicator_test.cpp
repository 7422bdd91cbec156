#include "common/comm/thread_communicator.h"

#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/comm/tree_sum.h"
#include "common/core/random.h"
#include "tests/catch.h"
#include "tests/comm/on_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kMillions = 3'000'001;  // many chunks, the last one not full

struct Case {
  int ranks;
  std::int64_t size;
};

// 64 KiB, what the hub takes at once, are 16384 f32 and 32768 bf16.
std::vector<Case> all_cases() {
  std::vector<Case> cases{{3, kMillions}};
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const std::int64_t size : {0, 1, 31, 16384, 16385, 32768, 32769, 100003})
      cases.push_back({ranks, size});
  return cases;
}

// Element i of what a rank puts in.
template <class T>
T element(int rank, std::int64_t i) {
  const auto seed = static_cast<std::uint64_t>(rank) + 1, index = static_cast<std::uint64_t>(i);
  if constexpr (std::is_same_v<T, std::int32_t>)
    return static_cast<std::int32_t>(random_bits(seed, index));
  else if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(uniform(seed, index) * 2 - 1);
  else
    return uniform(seed, index) * 2 - 1;
}

template <class T>
std::vector<T> elements(int rank, std::int64_t size) {
  std::vector<T> x(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) x[static_cast<std::size_t>(i)] = element<T>(rank, i);
  return x;
}

template <class T>
T rounded(float sum) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(sum);
  else
    return sum;
}

// The tree of tree_sum.h, written out.
float tree(const std::vector<float>& v) {
  switch (v.size()) {
    case 1:
      return v[0];
    case 2:
      return v[0] + v[1];
    case 3:
      return v[0] + (v[1] + v[2]);
    case 4:
      return (v[0] + v[1]) + (v[2] + v[3]);
    case 5:
      return (v[0] + v[1]) + (v[2] + (v[3] + v[4]));
    default:
      return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
}

template <class T>
std::vector<T> sums(int ranks, std::int64_t size) {
  std::vector<T> sum(static_cast<std::size_t>(size));
  std::vector<float> addends(static_cast<std::size_t>(ranks));
  for (std::int64_t i = 0; i < size; ++i) {
    for (int r = 0; r < ranks; ++r)
      addends[static_cast<std::size_t>(r)] = to_float(element<T>(r, i));
    sum[static_cast<std::size_t>(i)] = rounded<T>(tree(addends));
  }
  return sum;
}

template <class T>
std::vector<T> concatenated(int ranks, std::int64_t size) {
  std::vector<T> all;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> part = elements<T>(r, size);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
TensorView tensor(std::vector<T>& x) {
  return view_of(x.data(), {static_cast<std::int64_t>(x.size())});
}

// What every rank gets from body(comm).
template <class T, class Body>
std::vector<std::vector<T>> results_of(int ranks, const Body& body) {
  std::vector<std::vector<T>> results(static_cast<std::size_t>(ranks));
  const auto ends = on_ranks(ranks, 60s, [&](Communicator& comm, Group&) {
    results[static_cast<std::size_t>(comm.rank())] = body(comm);
  });
  REQUIRE(errors_of(ends) == "");
  return results;
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce leaves the tree sum on every rank", "", float, bf16) {
  for (const auto& [ranks, size] : all_cases()) {
    INFO(ranks << " ranks, " << size << " elements");
    const auto results = results_of<TestType>(ranks, [n = size](Communicator& comm) {
      auto x = elements<TestType>(comm.rank(), n);
      comm.all_reduce(tensor(x), "x");
      return x;
    });
    const auto expected = sums<TestType>(ranks, size);
    for (const auto& result : results) CHECK(same_bits(result, expected));
  }
}

TEMPLATE_TEST_CASE(
    "all_gather puts the parts in rank order on every rank", "", float, bf16, std::int32_t) {
  for (const auto& [ranks, size] : all_cases()) {
    INFO(ranks << " ranks, " << size << " elements");
    const auto results = results_of<TestType>(ranks, [n = size](Communicator& comm) {
      auto part = elements<TestType>(comm.rank(), n);
      std::vector<TestType> whole(part.size() * static_cast<std::size_t>(comm.size()));
      comm.all_gather(tensor(part), tensor(whole), "x");
      return whole;
    });
    const auto expected = concatenated<TestType>(ranks, size);
    for (const auto& result : results) CHECK(same_bits(result, expected));
  }
}

TEMPLATE_TEST_CASE("reduce_scatter leaves each rank its part of the tree sum", "", float, bf16) {
  for (const auto& [ranks, part_size] : all_cases()) {
    INFO(ranks << " ranks, parts of " << part_size << " elements");
    const auto results = results_of<TestType>(ranks, [n = part_size](Communicator& comm) {
      auto whole = elements<TestType>(comm.rank(), n * comm.size());
      std::vector<TestType> part(static_cast<std::size_t>(n));
      comm.reduce_scatter(tensor(whole), tensor(part), "x");
      return part;
    });
    const auto all = sums<TestType>(ranks, part_size * ranks);
    for (int r = 0; r < ranks; ++r) {
      const auto begin = all.begin() + r * part_size;
      CHECK(same_bits(results[static_cast<std::size_t>(r)],
                      std::vector<TestType>(begin, begin + part_size)));
    }
  }
}

TEMPLATE_TEST_CASE("gather fills the whole of the root only", "", float, bf16, std::int32_t) {
  for (const auto& [ranks, size] : all_cases()) {
    INFO(ranks << " ranks, " << size << " elements");
    for (const int root : {0, ranks - 1}) {
      const auto results = results_of<TestType>(ranks, [n = size, root](Communicator& comm) {
        auto part = elements<TestType>(comm.rank(), n);
        std::vector<TestType> whole;
        if (comm.rank() == root) whole.resize(part.size() * static_cast<std::size_t>(comm.size()));
        comm.gather(tensor(part), tensor(whole), root, "x");
        return whole;
      });
      for (int r = 0; r < ranks; ++r)
        CHECK(same_bits(results[static_cast<std::size_t>(r)],
                        r == root ? concatenated<TestType>(ranks, size) : std::vector<TestType>()));
    }
  }
}

TEMPLATE_TEST_CASE("broadcast copies the tensor of the root", "", float, bf16, std::int32_t) {
  for (const auto& [ranks, size] : all_cases()) {
    INFO(ranks << " ranks, " << size << " elements");
    for (const int root : {0, ranks - 1}) {
      const auto results = results_of<TestType>(ranks, [n = size, root](Communicator& comm) {
        auto x = elements<TestType>(comm.rank(), n);
        comm.broadcast(tensor(x), root, "x");
        return x;
      });
      const auto expected = elements<TestType>(root, size);
      for (const auto& result : results) CHECK(same_bits(result, expected));
    }
  }
}

TEMPLATE_TEST_CASE(
    "tensors travel around the ring by send and recv", "", float, bf16, std::int32_t) {
  for (const auto& [ranks, size] : all_cases()) {
    if (ranks == 1) continue;
    INFO(ranks << " ranks, " << size << " elements");
    const auto results = results_of<TestType>(ranks, [n = size](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      auto mine = elements<TestType>(comm.rank(), n);
      std::vector<TestType> theirs(mine.size());
      // A long message leaves only when it is received, so somebody has to receive first.
      if (comm.rank() == 0) comm.recv(tensor(theirs), previous, "x");
      comm.send(tensor(mine), next, "x");
      if (comm.rank() != 0) comm.recv(tensor(theirs), previous, "x");
      return theirs;
    });
    for (int r = 0; r < ranks; ++r)
      CHECK(same_bits(results[static_cast<std::size_t>(r)],
                      elements<TestType>((r + ranks - 1) % ranks, size)));
  }
}

TEST_CASE("nobody leaves a barrier before all have come") {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    std::atomic<int> arrived{0}, early{0};
    const auto ends = on_ranks(ranks, 60s, [&](Communicator& comm, Group&) {
      for (int round = 1; round <= 50; ++round) {
        arrived.fetch_add(1);
        comm.barrier("round");
        if (arrived.load() < round * comm.size()) early.fetch_add(1);
      }
    });
    CHECK(errors_of(ends) == "");
    CHECK(early == 0);
  }
}

// Addends 256.75 and 0.75 have the sum 257.5, and the bf16 next to that is 258 (they are 2 apart
// there). Rounded before the sum, they are 256 and 0.75, and their sum 256.75 becomes 256: partial
// sums stay f32 until after the reduction.
TEST_CASE("partial sums of f32 keep what bf16 addends have lost") {
  const auto all_reduced = [](auto zero) {
    using T = decltype(zero);
    const auto results = results_of<T>(2, [](Communicator& comm) {
      std::vector<T> x{rounded<T>(comm.rank() == 0 ? 256.75f : 0.75f)};
      comm.all_reduce(tensor(x), "x");
      return x;
    });
    return to_float(results[0][0]);
  };
  CHECK(all_reduced(0.0f) == 257.5f);
  CHECK(to_float(to_bf16(all_reduced(0.0f))) == 258.0f);
  CHECK(all_reduced(bf16{}) == 256.0f);
}

// (256 + 1) + (1 + 1) = 259, the middle between 258 and 260, becomes the even 260. With a rounding
// after every addition it would be 256 + 2 = 258.
TEST_CASE("a sum of bf16 is rounded once") {
  for (const bool scatter : {false, true}) {
    const auto results = results_of<bf16>(4, [scatter](Communicator& comm) {
      std::vector<bf16> x(4, to_bf16(comm.rank() == 0 ? 256.0f : 1.0f)), part(1);
      if (!scatter) {
        comm.all_reduce(tensor(x), "x");
        return x;
      }
      comm.reduce_scatter(tensor(x), tensor(part), "x");
      return part;
    });
    for (const auto& result : results) CHECK(to_float(result[0]) == 260.0f);
  }
}

TEST_CASE("a rank may overwrite its tensor as soon as a call returns") {
  constexpr std::int64_t kSize = 1000;
  constexpr int kRanks = 4;
  const auto expected_sum = sums<float>(kRanks, kSize);
  const auto expected_sum_of_parts = sums<float>(kRanks, kSize * kRanks);
  const auto expected_all = concatenated<float>(kRanks, kSize);
  const auto wrong = results_of<int>(kRanks, [&](Communicator& comm) {
    const int rank = comm.rank();
    const auto garbage = [](std::vector<float>& x) { x.assign(x.size(), -1e30f); };
    // Calls fn(buffer), keeps what is in the buffer and overwrites it at once.
    const auto call = [&](std::int64_t size, const auto& fn) {
      auto x = elements<float>(rank, size);
      fn(x);
      auto kept = x;
      garbage(x);
      return kept;
    };
    std::vector<float> whole(kSize * kRanks), part(kSize);
    std::vector<int> mistakes(1);
    const auto must_be = [&](const std::vector<float>& a, const std::vector<float>& b) {
      mistakes[0] += same_bits(a, b) ? 0 : 1;
    };
    for (int round = 0; round < 50; ++round) {
      must_be(call(kSize, [&](auto& x) { comm.all_reduce(tensor(x), "sum"); }), expected_sum);
      call(kSize, [&](auto& x) { comm.all_gather(tensor(x), tensor(whole), "all"); });
      must_be(whole, expected_all);
      garbage(whole);
      call(kSize, [&](auto& x) { comm.gather(tensor(x), tensor(whole), 1, "root"); });
      if (rank == 1) must_be(whole, expected_all);
      garbage(whole);
      call(kSize * kRanks, [&](auto& x) { comm.reduce_scatter(tensor(x), tensor(part), "part"); });
      const auto begin = expected_sum_of_parts.begin() + rank * kSize;
      must_be(part, std::vector<float>(begin, begin + kSize));
      garbage(part);
      const int root = round % kRanks;
      must_be(call(kSize, [&](auto& x) { comm.broadcast(tensor(x), root, "copy"); }),
              elements<float>(root, kSize));
      if (rank == 0) call(kSize, [&](auto& x) { comm.send(tensor(x), 3, "pair"); });
      if (rank == 3) {
        comm.recv(tensor(part), 0, "pair");
        must_be(part, elements<float>(0, kSize));
        garbage(part);
      }
    }
    return mistakes;
  });
  for (const auto& mistakes : wrong) CHECK(mistakes[0] == 0);
}

TEST_CASE("two thousand calls of changing sizes do not get into each other") {
  const auto wrong = results_of<int>(4, [](Communicator& comm) {
    const int rank = comm.rank(), ranks = comm.size();
    std::vector<int> mistakes(1);
    std::vector<float> x, whole;
    for (std::uint64_t call = 0; call < 2000; ++call) {
      const std::uint64_t bits = random_bits(99, call);
      const auto size = static_cast<std::size_t>(bits % (call % 50 == 0 ? 40'000 : 500));
      const float base = static_cast<float>(call % 1000);
      x.assign(size, base + static_cast<float>(rank));
      const auto all_are = [](const float* values, std::size_t count, float value) {
        for (std::size_t i = 0; i < count; ++i)
          if (values[i] != value) return false;
        return true;
      };
      bool right = true;
      switch (bits >> 61) {
        case 0:
          comm.barrier("barrier");
          break;
        case 1:
        case 2:
          comm.broadcast(tensor(x), static_cast<int>(call % 4), "broadcast");
          right = all_are(x.data(), size, base + static_cast<float>(call % 4));
          break;
        case 3:
        case 4:
          whole.assign(size * static_cast<std::size_t>(ranks), -1);
          comm.all_gather(tensor(x), tensor(whole), "all_gather");
          for (std::size_t r = 0; r < 4; ++r)
            right = right && all_are(whole.data() + r * size, size, base + static_cast<float>(r));
          break;
        default:
          comm.all_reduce(tensor(x), "all_reduce");
          right = all_are(x.data(), size, base * 4 + 6);
      }
      mistakes[0] += right ? 0 : 1;
    }
    return mistakes;
  });
  for (const auto& mistakes : wrong) CHECK(mistakes[0] == 0);
}

TEST_CASE("messages between two ranks arrive in their order and past other calls") {
  const auto results = results_of<float>(3, [](Communicator& comm) {
    std::vector<float> received;
    for (int i = 0; i < 20; ++i) {
      std::vector<float> x{static_cast<float>(100 * comm.rank() + i)};
      if (comm.rank() == 0) comm.send(tensor(x), 2, "from 0");
      comm.barrier("between");
      if (comm.rank() == 1) comm.send(tensor(x), 2, "from 1");
      if (comm.rank() == 2)
        for (const int from : {1, 0}) {
          comm.recv(tensor(x), from, "x");
          received.push_back(x[0]);
        }
    }
    return received;
  });
  REQUIRE(results[2].size() == 40);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(results[2][2 * i] == static_cast<float>(100 + i));
    CHECK(results[2][2 * i + 1] == static_cast<float>(i));
  }
}

TEST_CASE("a call with tensors that do not fit is refused before it starts") {
  std::vector<float> six(6), four(4);
  std::vector<std::int32_t> numbers(6);
  std::vector<bf16> halves(6);
  const auto refusal = [&](const RankBody& body) { return on_ranks(2, 5s, body)[0]; };
  const std::vector<RankEnd> ends = {
      refusal([&](Communicator& c, Group&) { c.all_gather(tensor(six), tensor(six), "x"); }),
      refusal([&](Communicator& c, Group&) { c.reduce_scatter(tensor(six), tensor(four), "x"); }),
      refusal([&](Communicator& c, Group&) { c.all_reduce(tensor(numbers), "x"); }),
      refusal([&](Communicator& c, Group&) { c.broadcast(tensor(six), 2, "x"); }),
      refusal([&](Communicator& c, Group&) { c.gather(tensor(six), {}, -1, "x"); }),
      refusal([&](Communicator& c, Group&) { c.send(tensor(six), c.rank(), "x"); }),
      refusal([&](Communicator& c, Group&) { c.recv(tensor(six), c.rank(), "x"); }),
      refusal([&](Communicator& c, Group&) {
        c.all_reduce(view_of(six.data(), {2, 3}).columns_in({0, 2}), "x");
      })};
  for (const RankEnd& end : ends) {
    CHECK_FALSE(end.error.empty());
    CHECK((end.of_kind_rank || end.aborted));
  }
}

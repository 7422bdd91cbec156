// What every operation leaves on every rank, for each way to connect ranks on GPUs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/comm/tree_sum.h"
#include "common/core/random.h"
#include "tests/catch.h"
#include "tests/comm/cuda/on_gpu_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

struct Case {
  Connection connection;
  int ranks;
  std::int64_t size;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Connection& connection : connections())
    for (const int ranks : {1, 2, 3, 4, 8})
      if (runs_here(connection, ranks))
        for (const std::int64_t size : {0, 1, 31, 32, 33, 257, 100003})
          cases.push_back({connection, ranks, size});
  REQUIRE_FALSE(cases.empty());
  return cases;
}

#define INFO_CASE(c) \
  INFO((c).connection.name << ", " << (c).ranks << " ranks, " << (c).size << " elements")

template <class T>
T stored(float value) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else
    return static_cast<T>(value);
}

template <class T>
float widened(T value) {
  if constexpr (std::is_same_v<T, std::int32_t>)
    return static_cast<float>(value);
  else
    return to_float(value);
}

template <class T>
T element(int rank, std::int64_t i) {
  const std::uint64_t bits = random_bits(7 + static_cast<std::uint64_t>(rank), i);
  return stored<T>(static_cast<float>(bits >> 40) / 65536.0f - 128.0f);
}

template <class T>
std::vector<T> elements(int rank, std::int64_t size) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(element<T>(rank, i));
  return values;
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
std::vector<T> tree_sums(int ranks, std::int64_t size) {
  std::vector<T> sums;
  for (std::int64_t i = 0; i < size; ++i) {
    float total = 0;
    tree_sum(
        0, ranks, [i](int r, float* out) { *out = to_float(element<T>(r, i)); }, &total, 1);
    sums.push_back(stored<T>(total));
  }
  return sums;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Equal bits where the order of the sum is ours. NCCL has its own, which it does not promise; with
// n ranks, its rounding errors are at most n of the dtype's steps of the sum of all magnitudes.
template <class T>
bool are_sums(const std::vector<T>& got, const std::vector<T>& right, const Case& c) {
  if (c.connection.in_tree_order()) return same_bits(got, right);
  if (got.size() != right.size()) return false;
  const float step = std::is_same_v<T, bf16> ? 0x1p-8f : 0x1p-24f;
  const float magnitude = 128.0f * static_cast<float>(c.ranks);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(widened(got[i]) - widened(right[i])) <=
          static_cast<float>(c.ranks) * step * magnitude))
      return false;
  return true;
}

// What body(context) returns on every rank.
template <class T, class Body>
std::vector<std::vector<T>> results_of(const Connection& connection, int ranks, const Body& body) {
  std::vector<std::vector<T>> results(static_cast<std::size_t>(ranks));
  const auto ends = on_gpu_ranks(connection, ranks, 60s, [&](const GpuContext& ctx) {
    results[static_cast<std::size_t>(ctx.comm.rank())] = body(ctx);
  });
  REQUIRE(errors_of(ends) == "");
  return results;
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce on GPUs leaves the same sum on every rank", "", float, bf16) {
  for (const Case& c : all_cases()) {
    INFO_CASE(c);
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      Tensor x = ctx.upload(elements<TestType>(ctx.comm.rank(), c.size));
      ctx.comm.all_reduce(x, "x");
      return ctx.download<TestType>(x);
    });
    CHECK(are_sums(results[0], tree_sums<TestType>(c.ranks, c.size), c));
    for (const auto& result : results) CHECK(same_bits(result, results[0]));
  }
}

TEMPLATE_TEST_CASE("reduce_scatter on GPUs leaves each rank its part of the sum", "", float, bf16) {
  for (Case c : all_cases()) {
    c.size = std::min<std::int64_t>(c.size, 20003);  // of the part
    INFO_CASE(c);
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      const Tensor whole = ctx.upload(elements<TestType>(ctx.comm.rank(), c.size * c.ranks));
      Tensor part = ctx.device.allocate({c.size}, dtype_of<TestType>, "test");
      ctx.comm.reduce_scatter(whole, part, "x");
      return ctx.download<TestType>(part);
    });
    const auto all = tree_sums<TestType>(c.ranks, c.size * c.ranks);
    for (int r = 0; r < c.ranks; ++r) {
      const auto begin = all.begin() + r * c.size;
      CHECK(are_sums(results[static_cast<std::size_t>(r)],
                     std::vector<TestType>(begin, begin + c.size), c));
    }
  }
}

TEMPLATE_TEST_CASE(
    "all_gather on GPUs puts the parts in rank order", "", float, bf16, std::int32_t) {
  for (const Case& c : all_cases()) {
    INFO_CASE(c);
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      const Tensor part = ctx.upload(elements<TestType>(ctx.comm.rank(), c.size));
      Tensor whole = ctx.device.allocate({c.size * c.ranks}, dtype_of<TestType>, "test");
      ctx.comm.all_gather(part, whole, "x");
      return ctx.download<TestType>(whole);
    });
    for (const auto& result : results)
      CHECK(same_bits(result, concatenated<TestType>(c.ranks, c.size)));
  }
}

TEMPLATE_TEST_CASE("gather on GPUs fills the whole of the root only", "", float, std::int32_t) {
  for (const Case& c : all_cases()) {
    INFO_CASE(c);
    const int root = c.ranks - 1;
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      const Tensor part = ctx.upload(elements<TestType>(ctx.comm.rank(), c.size));
      const bool receives = ctx.comm.rank() == root;
      Tensor whole =
          ctx.device.allocate({receives ? c.size * c.ranks : 0}, dtype_of<TestType>, "test");
      ctx.comm.gather(part, whole, root, "x");
      return ctx.download<TestType>(whole);
    });
    for (int r = 0; r < c.ranks; ++r)
      CHECK(
          same_bits(results[static_cast<std::size_t>(r)],
                    r == root ? concatenated<TestType>(c.ranks, c.size) : std::vector<TestType>()));
  }
}

TEMPLATE_TEST_CASE(
    "broadcast on GPUs copies the tensor of the root", "", float, bf16, std::int32_t) {
  for (const Case& c : all_cases()) {
    INFO_CASE(c);
    const int root = c.ranks / 2;
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      Tensor x = ctx.upload(elements<TestType>(ctx.comm.rank(), c.size));
      ctx.comm.broadcast(x, root, "x");
      return ctx.download<TestType>(x);
    });
    for (const auto& result : results) CHECK(same_bits(result, elements<TestType>(root, c.size)));
  }
}

TEMPLATE_TEST_CASE("tensors on GPUs travel around the ring by send and recv", "", float, bf16) {
  for (const Case& c : all_cases()) {
    if (c.ranks == 1) continue;
    INFO_CASE(c);
    const auto results = results_of<TestType>(c.connection, c.ranks, [&](const GpuContext& ctx) {
      Communicator& comm = ctx.comm;
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      const Tensor mine = ctx.upload(elements<TestType>(comm.rank(), c.size));
      Tensor theirs = ctx.device.allocate({c.size}, dtype_of<TestType>, "test");
      if (comm.rank() == 0) comm.recv(theirs, previous, "x");
      comm.send(mine, next, "x");
      if (comm.rank() != 0) comm.recv(theirs, previous, "x");
      return ctx.download<TestType>(theirs);
    });
    for (int r = 0; r < c.ranks; ++r)
      CHECK(same_bits(results[static_cast<std::size_t>(r)],
                      elements<TestType>((r + c.ranks - 1) % c.ranks, c.size)));
  }
}

// Nothing waits on the host in between: the order of the streams alone must keep the calls apart. A
// rank overwrites its operand as soon as a call returns.
TEST_CASE("calls of changing sizes on GPUs do not get into each other") {
  constexpr std::int64_t kMost = 20'000;
  for (const Connection& connection : connections()) {
    if (!runs_here(connection, 4)) continue;
    INFO(connection.name);
    const auto wrong = results_of<int>(connection, 4, [](const GpuContext& ctx) {
      Communicator& comm = ctx.comm;
      const auto me = static_cast<std::size_t>(comm.rank());
      constexpr std::uint64_t kCalls = 120;
      // Row r of `values` is r + 1 everywhere, row 4 is garbage.
      std::vector<float> host(5 * kMost);
      for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i / kMost + 1);
      Tensor values = ctx.upload(host);
      const auto row = [&](std::size_t r, std::int64_t size) {
        TensorView view = values.view();
        view.data += r * kMost * sizeof(float);
        view.shape = Shape{size};
        view.row_stride = 1;
        return view;
      };
      std::vector<Tensor> kept;
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        const std::uint64_t bits = random_bits(99, call);
        const auto size = static_cast<std::int64_t>(bits % (call % 10 == 0 ? kMost : 300)) + 1;
        Tensor x = ctx.device.allocate({size}, DType::f32, "test");
        ctx.device.copy(row(me, size), x);
        Tensor whole = ctx.device.allocate({4 * size}, DType::f32, "test");
        switch (call % 4) {
          case 0:
            comm.all_reduce(x, "sum");
            ctx.device.copy(x.view(), whole.view().rows_in({0, size}));
            break;
          case 1:
            comm.broadcast(x, static_cast<int>(call / 4 % 4), "copy");
            ctx.device.copy(x.view(), whole.view().rows_in({0, size}));
            break;
          case 2:
            comm.all_gather(x, whole, "all");
            break;
          default:
            if (me == 0) comm.send(x, 2, "pair");
            if (me == 2) comm.recv(whole.view().rows_in({0, size}), 0, "pair");
        }
        ctx.device.copy(row(4, size), x);
        kept.push_back(std::move(whole));
      }
      std::vector<int> mistakes(1);
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        const auto whole = ctx.download<float>(kept[call]);
        const std::size_t size = whole.size() / 4;
        for (std::size_t i = 0; i < whole.size(); ++i) {
          const bool first = i < size;
          float right = 0;
          if (call % 4 == 0 && first) right = 10;
          if (call % 4 == 1 && first) right = static_cast<float>(call / 4 % 4 + 1);
          if (call % 4 == 2) right = static_cast<float>(i / size + 1);
          if (call % 4 == 3 && first && me == 2) right = 1;
          mistakes[0] += whole[i] == right ? 0 : 1;
        }
      }
      return mistakes;
    });
    for (const auto& mistakes : wrong) CHECK(mistakes[0] == 0);
  }
}

TEST_CASE("sends on GPUs in a row do not overwrite each other") {
  constexpr std::int64_t kSize = 30'000;  // two pieces
  for (const Connection& connection : connections()) {
    if (!runs_here(connection, 2)) continue;
    INFO(connection.name);
    const auto wrong = results_of<int>(connection, 2, [](const GpuContext& ctx) {
      std::vector<Tensor> tensors;
      for (int i = 0; i < 10; ++i) {
        const bool sends = ctx.comm.rank() == 0;
        tensors.push_back(
            ctx.upload(std::vector<float>(kSize, sends ? static_cast<float>(i) : -1)));
        if (sends)
          ctx.comm.send(tensors.back(), 1, "x");
        else
          ctx.comm.recv(tensors.back(), 0, "x");
      }
      std::vector<int> mistakes(1);
      for (int i = 0; i < 10; ++i)
        for (const float value : ctx.download<float>(tensors[static_cast<std::size_t>(i)]))
          mistakes[0] += value == static_cast<float>(i) ? 0 : 1;
      return mistakes;
    });
    for (const auto& mistakes : wrong) CHECK(mistakes[0] == 0);
  }
}

TEST_CASE("tensors on the host are refused between GPUs") {
  for (const Connection& connection : connections()) {
    if (!runs_here(connection, 2)) continue;
    INFO(connection.name);
    const auto ends = on_gpu_ranks(connection, 2, 5s, [](const GpuContext& ctx) {
      std::vector<float> x(8);
      ctx.comm.all_reduce(view_of(x.data(), {8}), "x");
    });
    CHECK_THAT(errors_of(ends), ContainsSubstring("lives on the host"));
  }
}

TEST_CASE("calls of a captured step are counted when it is replayed") {
  Connection alone = connections()[0];
  if (!runs_here(alone, 1)) return;
  const auto ends = on_gpu_ranks(alone, 1, 5s, [](const GpuContext& ctx) {
    Tensor x = ctx.upload(std::vector<float>(8));
    CHECK(ctx.comm.can_capture());
    ctx.comm.all_reduce(x, "before");
    ctx.comm.start_recording();
    ctx.comm.all_reduce(x, "layer");
    ctx.comm.all_reduce(x, "layer");
    const std::vector<Call> calls = ctx.comm.stop_recording();
    CHECK(calls.size() == 2);
    CHECK(ctx.comm.ledger().total(Op::all_reduce, "layer").calls == 0);
    ctx.comm.replayed(calls);
    ctx.comm.replayed(calls);
    CHECK(ctx.comm.ledger().total(Op::all_reduce, "layer").calls == 4);
    CHECK(ctx.comm.ledger().total(Op::all_reduce, "layer").payload_bytes == 4 * 32);
    CHECK(ctx.comm.last_call().sequence == 7);
    ctx.comm.all_reduce(x, "after");
    CHECK(ctx.comm.last_call().sequence == 8);
  });
  CHECK(errors_of(ends) == "");
}

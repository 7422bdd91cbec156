#include "common/parallel/run_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/core/error.h"
#include "common/core/matrix.h"
#include "common/parallel/faults.h"
#include "tests/catch.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

using Body = std::function<void(RankContext&, RankOutput&)>;

Launch launch_of(int tp_size, std::chrono::milliseconds timeout = 60s) {
  Launch launch;
  launch.tp_size = tp_size;
  launch.timeout = timeout;
  return launch;
}

// The error with which run_ranks ends, long before the time-out of a minute.
std::string failure(const Launch& launch, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    run_ranks(launch, body);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::rank);
    text = e.what();
  }
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  return text;
}

void sum_ones(RankContext& ctx, const char* label) {
  Matrix x(1, 4, {1, 1, 1, 1});
  ctx.comm.all_reduce(x.view(), label);
}

}  // namespace

TEST_CASE("every rank runs once and the outputs are in rank order") {
  for (const int tp_size : {1, 2, 3, 8}) {
    std::atomic<int> runs{0};
    const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
      runs.fetch_add(1);
      Matrix x(1, 3, {static_cast<float>(ctx.rank), static_cast<float>(ctx.tp_size), 0});
      out.keep("x", x.view());
      x(0, 0) = -1;  // the output is a copy
      sum_ones(ctx, "label");
      if (ctx.comm.rank() != ctx.rank || ctx.group.size() != ctx.tp_size)
        throw std::logic_error("the context contradicts itself");
    });
    CHECK(runs == tp_size);
    REQUIRE(ranks.size() == static_cast<std::size_t>(tp_size));
    for (int r = 0; r < tp_size; ++r) {
      const RankOutput& rank = ranks[static_cast<std::size_t>(r)];
      CHECK(to_matrix(rank.tensor("x")).values ==
            std::vector<float>{static_cast<float>(r), static_cast<float>(tp_size), 0});
      CHECK(rank.ledger.total(Op::all_reduce, "label").calls == 1);
    }
  }
}

TEST_CASE("the memory of a rank is counted by purpose") {
  const auto ranks = run_ranks(launch_of(2), [](RankContext& ctx, RankOutput&) {
    const Tensor kept = ctx.device.allocate({4, 2}, DType::bf16, "kv");
    { const Tensor passing = ctx.device.allocate({10}, DType::f32, "kv"); }
    const Tensor other = ctx.device.allocate({ctx.rank + 1}, DType::f32, "logits");
  });
  for (int r = 0; r < 2; ++r) {
    const MemoryCounter& memory = ranks[static_cast<std::size_t>(r)].memory;
    CHECK(memory.use("kv").peak_bytes == 16 + 40);
    CHECK(memory.use("kv").bytes == 0);
    CHECK(memory.use("logits").peak_bytes == 4 * (r + 1));
    CHECK(memory.use("no such tag").peak_bytes == 0);
  }
}

TEST_CASE("a rank that throws is named with its message and its last call") {
  for (const int thrower : {0, 2}) {
    const std::string text = failure(launch_of(4), [thrower](RankContext& ctx, RankOutput&) {
      sum_ones(ctx, "layer 0");
      if (ctx.rank == thrower) throw std::runtime_error("out of patience");
      for (int i = 0; i < 10; ++i) sum_ones(ctx, "layer 1");
    });
    CHECK_THAT(text, ContainsSubstring("rank " + std::to_string(thrower) + " failed"));
    CHECK_THAT(text, ContainsSubstring("out of patience"));
    CHECK_THAT(text, ContainsSubstring("all_reduce of 4 f32 \"layer 0\" (call 1)"));
  }
}

TEST_CASE("a rank that throws before any call says so") {
  const std::string text = failure(launch_of(3), [](RankContext& ctx, RankOutput&) {
    if (ctx.rank == 1) throw Error(ErrorKind::rank, "no weights");
    sum_ones(ctx, "x");
  });
  CHECK_THAT(text, ContainsSubstring("rank 1 failed: no weights"));
  CHECK_THAT(text, ContainsSubstring("before any communication"));
}

TEST_CASE("an error that the user can cure stays one") {
  try {
    run_ranks(launch_of(2), [](RankContext& ctx, RankOutput&) {
      if (ctx.rank == 1) throw input_error("w: too large for bf16");
      sum_ones(ctx, "x");
    });
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK_THAT(e.what(), ContainsSubstring("rank 1 failed: w: too large for bf16"));
  }
}

TEST_CASE("a failure counts also when the other ranks are done") {
  const std::string text = failure(launch_of(2), [](RankContext& ctx, RankOutput&) {
    if (ctx.rank == 0) return;
    std::this_thread::sleep_for(50ms);
    throw std::runtime_error("at the very end");
  });
  CHECK_THAT(text, ContainsSubstring("rank 1 failed: at the very end"));
}

TEST_CASE("a single rank fails like many") {
  CHECK_THAT(
      failure(launch_of(1), [](RankContext&, RankOutput&) { throw std::runtime_error("alone"); }),
      ContainsSubstring("rank 0 failed: alone"));
}

TEST_CASE("after a failure new ranks work right away") {
  for (int round = 0; round < 5; ++round) {
    failure(launch_of(3), [](RankContext& ctx, RankOutput&) {
      if (ctx.rank == 2) throw std::runtime_error("again");
      sum_ones(ctx, "x");
    });
    const auto ranks = run_ranks(launch_of(3), [](RankContext& ctx, RankOutput& out) {
      Matrix x(1, 1, {static_cast<float>(ctx.rank)});
      ctx.comm.all_reduce(x.view(), "x");
      out.keep("x", x.view());
    });
    for (const RankOutput& rank : ranks) CHECK(rank.tensor("x").row<float>(0)[0] == 3);
  }
}

TEST_CASE("a rank that is late for longer than the time-out is named") {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = failure(launch_of(2, 300ms), [](RankContext& ctx, RankOutput&) {
    if (ctx.rank == 1) std::this_thread::sleep_for(900ms);
    sum_ones(ctx, "o_proj");
  });
  CHECK(std::chrono::steady_clock::now() - start < 2s);
  CHECK_THAT(text, ContainsSubstring("rank 0 failed"));
  CHECK_THAT(text, ContainsSubstring("for rank 1"));
  CHECK_THAT(text, ContainsSubstring("all_reduce of 4 f32 \"o_proj\""));
}

TEST_CASE("calls that differ are an error that names both") {
  const std::string text = failure(launch_of(2), [](RankContext& ctx, RankOutput&) {
    Matrix x(1, ctx.rank == 0 ? 8 : 4);
    ctx.comm.all_reduce(x.view(), "x");
  });
  CHECK_THAT(text, ContainsSubstring("rank 0 calls all_reduce of 8 f32"));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls all_reduce of 4 f32"));
}

TEST_CASE("every mismatch that a chapter can make on purpose is found") {
  for (const Fault& fault : mismatched_collective_faults()) {
    INFO(fault.name);
    const std::string text =
        failure(with_fault(launch_of(3), fault.name), [](RankContext& ctx, RankOutput&) {
          sum_ones(ctx, "first");
          sum_ones(ctx, "second");
        });
    CHECK_THAT(text, ContainsSubstring("rank 2"));
    CHECK_THAT(text, ContainsSubstring("all_reduce") || ContainsSubstring("broadcast"));
  }
  const auto ranks = run_ranks(with_fault(launch_of(3), "no such fault"),
                               [](RankContext& ctx, RankOutput&) { sum_ones(ctx, "x"); });
  CHECK(ranks.size() == 3);
}

// The rank cannot be killed, being a thread, so the process ends; the test looks at it from
// outside.
TEST_CASE("a rank that does not stop ends the process with code 3") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(STDOUT_FILENO);
    try {
      run_ranks(launch_of(2), [](RankContext& ctx, RankOutput&) {
        if (ctx.rank == 0) throw std::runtime_error("the cause");
        std::this_thread::sleep_for(1h);
      });
    } catch (...) {
    }
    ::_exit(99);
  }
  ::close(pipe[1]);
  std::string text;
  std::array<char, 256> part{};
  for (ssize_t n = 0; (n = ::read(pipe[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK_THAT(text, ContainsSubstring("rank 0 failed: the cause"));
  CHECK_THAT(text, ContainsSubstring("1 of 2 ranks did not stop"));
}

TEST_CASE("the command line sets ranks and time-out") {
  Options options;
  options.tp = 5;
  options.timeout_s = 0.25;
  const Launch launch = Launch::from(options);
  CHECK(launch.tp_size == 5);
  CHECK(launch.timeout >= 250ms);
  CHECK(launch.timeout < 260ms);
}

TEST_CASE("whatever a rank throws stops all ranks") {
  Launch launch;
  launch.tp_size = 3;
  CHECK_THROWS_WITH(run_ranks(launch,
                              [](RankContext& ctx, RankOutput&) {
                                if (ctx.rank == 2) throw 42;
                                ctx.group.barrier();
                              }),
                    ContainsSubstring("rank 2 failed: something was thrown"));
}

TEST_CASE("ranks wait for orders as long as it takes but hear when there will be none") {
  Launch launch;
  launch.tp_size = 3;
  launch.timeout = std::chrono::milliseconds(100);
  const auto body = [](Patience patience, bool fails) {
    return [=](RankContext& ctx, RankOutput&) {
      std::vector<std::byte> bytes(5);
      if (ctx.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      if (ctx.rank == 0 && fails) throw Error(ErrorKind::rank, "no more orders");
      ctx.group.broadcast(bytes, 0, patience);
    };
  };
  CHECK_NOTHROW(run_ranks(launch, body(Patience::unlimited, false)));
  CHECK_THROWS_WITH(run_ranks(launch, body(Patience::unlimited, true)),
                    ContainsSubstring("rank 0 failed: no more orders"));
  CHECK_THROWS_WITH(run_ranks(launch, body(Patience::limited, false)),
                    ContainsSubstring("did not come"));
}

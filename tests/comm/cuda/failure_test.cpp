// What ranks on GPUs say when they do not fit together, and that nothing hangs.
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/catch.h"
#include "tests/comm/cuda/on_gpu_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

void all_reduce(const GpuContext& ctx, std::int64_t size, DType dtype = DType::f32) {
  Tensor x = ctx.device.allocate({size}, dtype, "test");
  ctx.comm.all_reduce(x, "o_proj");
  ctx.device.synchronize();
}

void broadcast(const GpuContext& ctx, std::int64_t size, int root) {
  Tensor x = ctx.device.allocate({size}, DType::f32, "test");
  ctx.comm.broadcast(x, root, "ids");
}

// The connections that this machine has the GPUs for. Every one of them must do what the body
// checks.
template <class Body>
void on_every_connection(int ranks, const Body& body) {
  int runs = 0;
  for (const Connection& connection : connections()) {
    if (!runs_here(connection, ranks)) continue;
    INFO(connection.name);
    body(connection);
    ++runs;
    // A new run starts at once.
    const auto ends =
        on_gpu_ranks(connection, ranks, 60s, [](const GpuContext& ctx) { all_reduce(ctx, 100); });
    CHECK(errors_of(ends) == "");
  }
  REQUIRE(runs > 0);
}

// The cause that the ranks end with; all of them end, long before the time-out.
std::string cause_of(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends) {
    CHECK_FALSE(end.error.empty());
    CHECK((end.aborted || end.of_kind_rank));
    CHECK(end.after < 10s);
    if (!end.aborted) text += end.error;
  }
  return text;
}

std::string disagreement(const Connection& connection,
                         const GpuBody& on_rank_0,
                         const GpuBody& on_rank_1) {
  return cause_of(on_gpu_ranks(connection, 2, 60s, [&](const GpuContext& ctx) {
    (ctx.comm.rank() == 0 ? on_rank_0 : on_rank_1)(ctx);
  }));
}

}  // namespace

TEST_CASE("calls on GPUs that differ are named with both ranks") {
  struct Pair {
    GpuBody left, right;
    std::string on_0, on_1;
  };
  const std::vector<Pair> pairs = {
      {[](const GpuContext& ctx) { all_reduce(ctx, 8); },
       [](const GpuContext& ctx) { all_reduce(ctx, 4); }, "all_reduce of 8 f32 \"o_proj\" (call 1)",
       "all_reduce of 4 f32 \"o_proj\" (call 1)"},
      {[](const GpuContext& ctx) { all_reduce(ctx, 100000); },
       [](const GpuContext& ctx) { all_reduce(ctx, 99999); }, "all_reduce of 100000 f32",
       "all_reduce of 99999 f32"},
      {[](const GpuContext& ctx) { all_reduce(ctx, 8); },
       [](const GpuContext& ctx) { all_reduce(ctx, 8, DType::bf16); }, "all_reduce of 8 f32",
       "all_reduce of 8 bf16"},
      {[](const GpuContext& ctx) { all_reduce(ctx, 8); },
       [](const GpuContext& ctx) { broadcast(ctx, 8, 0); }, "all_reduce of 8 f32",
       "broadcast of 8 f32 from rank 0"},
      {[](const GpuContext& ctx) { broadcast(ctx, 8, 0); },
       [](const GpuContext& ctx) { broadcast(ctx, 8, 1); }, "broadcast of 8 f32 from rank 0",
       "broadcast of 8 f32 from rank 1"},
      {[](const GpuContext& ctx) {  // the order
         all_reduce(ctx, 8);
         ctx.comm.barrier("end");
       },
       [](const GpuContext& ctx) {
         ctx.comm.barrier("end");
         all_reduce(ctx, 8);
       },
       "all_reduce of 8 f32 \"o_proj\" (call 1)", "barrier \"end\" (call 1)"},
      {[](const GpuContext& ctx) {  // one call left out
         all_reduce(ctx, 8);
         all_reduce(ctx, 8);
         ctx.comm.barrier("end");
       },
       [](const GpuContext& ctx) {
         all_reduce(ctx, 8);
         ctx.comm.barrier("end");
       },
       "all_reduce of 8 f32 \"o_proj\" (call 2)", "barrier \"end\" (call 2)"}};
  on_every_connection(2, [&](const Connection& connection) {
    for (const Pair& pair : pairs)
      CHECK_THAT(disagreement(connection, pair.left, pair.right),
                 ContainsSubstring("rank 0 calls " + pair.on_0) &&
                     ContainsSubstring("rank 1 calls " + pair.on_1));
  });
}

TEST_CASE("a receiver on a GPU that expects something else names both sides") {
  on_every_connection(2, [](const Connection& connection) {
    const std::string text = disagreement(
        connection,
        [](const GpuContext& ctx) {
          const Tensor x = ctx.device.allocate({8}, DType::f32, "test");
          ctx.comm.send(x, 1, "out");
          ctx.device.synchronize();
          ctx.comm.barrier("end");
        },
        [](const GpuContext& ctx) {
          Tensor x = ctx.device.allocate({4}, DType::f32, "test");
          ctx.comm.recv(x, 0, "in");
          ctx.device.synchronize();
          ctx.comm.barrier("end");
        });
    CHECK_THAT(text, ContainsSubstring("rank 0 calls send of 8 f32 to rank 1 \"out\"") &&
                         ContainsSubstring("rank 1 calls recv of 4 f32 from rank 0 \"in\""));
  });
}

TEST_CASE("a rank on a GPU that throws stops the others at once") {
  on_every_connection(4, [](const Connection& connection) {
    for (const int thrower : {0, 2}) {
      const auto ends = on_gpu_ranks(connection, 4, 60s, [thrower](const GpuContext& ctx) {
        for (int step = 0; step < 5; ++step)
          for (int layer = 0; layer < 4; ++layer) {
            if (step == 3 && layer == 2 && ctx.comm.rank() == thrower)
              throw std::runtime_error("out of patience");
            Tensor x = ctx.device.allocate({20000}, DType::f32, "test");
            ctx.comm.all_reduce(x, "layer");
          }
      });
      for (int r = 0; r < 4; ++r) {
        const RankEnd& end = ends[static_cast<std::size_t>(r)];
        CHECK(end.aborted == (r != thrower));
        CHECK(end.after < 10s);
      }
      CHECK(ends[static_cast<std::size_t>(thrower)].error == "out of patience");
    }
  });
}

TEST_CASE("a rank on a GPU that never comes is named within the time-out and two seconds") {
  on_every_connection(3, [](const Connection& connection) {
    const auto ends = on_gpu_ranks(connection, 3, 500ms, [](const GpuContext& ctx) {
      if (ctx.comm.rank() == 2) return std::this_thread::sleep_for(1s);
      all_reduce(ctx, 8);
    });
    std::string text;
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK_FALSE(ends[r].error.empty());
      CHECK(ends[r].after < 2500ms);
      if (!ends[r].aborted) text = ends[r].error;
    }
    CHECK_THAT(text, ContainsSubstring("for rank 2") && ContainsSubstring("0.5 s") &&
                         ContainsSubstring("all_reduce of 8 f32 \"o_proj\""));
  });
}

TEST_CASE("a rank on a GPU that has finished is not waited for") {
  on_every_connection(3, [](const Connection& connection) {
    const auto ends = on_gpu_ranks(connection, 3, 60s, [](const GpuContext& ctx) {
      ctx.comm.barrier("start");
      if (ctx.comm.rank() != 1) all_reduce(ctx, 8);
    });
    CHECK_THAT(errors_of(ends), ContainsSubstring("rank 1 has already finished") &&
                                    ContainsSubstring("all_reduce of 8 f32 \"o_proj\""));
    for (const RankEnd& end : ends) CHECK(end.after < 10s);
  });
}

TEST_CASE("a rank that fails before it has a communicator stops the others") {
  on_every_connection(3, [](const Connection& connection) {
    const auto ends = on_gpu_ranks(
        connection, 3, 60s, [](const GpuContext&) {},
        [](int rank) {
          if (rank == 1) throw std::runtime_error("no such file");
        });
    CHECK(ends[1].error == "no such file");
    for (const std::size_t r : {0u, 2u}) {
      CHECK(ends[r].aborted);
      CHECK(ends[r].after < 10s);
    }
  });
}

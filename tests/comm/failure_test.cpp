// What the ranks say when they do not fit together, and that nothing hangs.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/core/random.h"
#include "tests/catch.h"
#include "tests/comm/on_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

using Floats = std::vector<float>;

template <class T>
TensorView tensor(std::vector<T>& x) {
  return view_of(x.data(), {static_cast<std::int64_t>(x.size())});
}

void all_reduce(Communicator& comm, std::size_t size, const char* label = "x") {
  Floats x(size);
  comm.all_reduce(tensor(x), label);
}

// Two ranks that make different calls; the error that they end with. Long before the time-out.
std::string disagreement(const RankBody& on_rank_0, const RankBody& on_rank_1) {
  const auto ends = on_ranks(2, 60s, [&](Communicator& comm, Group& group) {
    (comm.rank() == 0 ? on_rank_0 : on_rank_1)(comm, group);
  });
  std::string text;
  for (const RankEnd& end : ends) {
    CHECK_FALSE(end.error.empty());
    CHECK((end.aborted || end.of_kind_rank));
    CHECK(end.after < 10s);
    if (!end.aborted) text = end.error;
  }
  return text;
}

}  // namespace

TEST_CASE("different counts are named with both ranks") {
  const std::string text = disagreement([](auto& comm, auto&) { all_reduce(comm, 8, "o_proj"); },
                                        [](auto& comm, auto&) { all_reduce(comm, 4, "o_proj"); });
  CHECK_THAT(text, ContainsSubstring("rank 0 calls all_reduce of 8 f32 \"o_proj\""));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls all_reduce of 4 f32 \"o_proj\""));
}

TEST_CASE("counts that differ in the last of many elements are seen") {
  const std::string text = disagreement([](auto& comm, auto&) { all_reduce(comm, 100000); },
                                        [](auto& comm, auto&) { all_reduce(comm, 99999); });
  CHECK_THAT(text, ContainsSubstring("of 100000 f32"));
  CHECK_THAT(text, ContainsSubstring("of 99999 f32"));
}

TEST_CASE("different dtypes of the same number of bytes are named") {
  const std::string text = disagreement([](auto& comm, auto&) { all_reduce(comm, 8); },
                                        [](auto& comm, auto&) {
                                          std::vector<bf16> x(16);
                                          comm.all_reduce(tensor(x), "x");
                                        });
  CHECK_THAT(text, ContainsSubstring("of 8 f32"));
  CHECK_THAT(text, ContainsSubstring("of 16 bf16"));
}

TEST_CASE("the same count of another dtype is named") {
  const std::string text = disagreement([](auto& comm, auto&) { all_reduce(comm, 8); },
                                        [](auto& comm, auto&) {
                                          std::vector<bf16> x(8);
                                          comm.all_reduce(tensor(x), "x");
                                        });
  CHECK_THAT(text, ContainsSubstring("of 8 f32"));
  CHECK_THAT(text, ContainsSubstring("of 8 bf16"));
}

TEST_CASE("different operations are named") {
  const std::string text = disagreement([](auto& comm, auto&) { all_reduce(comm, 8); },
                                        [](auto& comm, auto&) {
                                          Floats x(8);
                                          comm.broadcast(tensor(x), 0, "x");
                                        });
  CHECK_THAT(text, ContainsSubstring("rank 0 calls all_reduce of 8 f32"));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls broadcast of 8 f32 from rank 0"));
}

TEST_CASE("different roots are named") {
  const auto broadcast_from = [](int root) {
    return [root](Communicator& comm, Group&) {
      Floats x(8);
      comm.broadcast(tensor(x), root, "x");
    };
  };
  const std::string copied = disagreement(broadcast_from(0), broadcast_from(1));
  CHECK_THAT(copied, ContainsSubstring("rank 0 calls broadcast of 8 f32 from rank 0"));
  CHECK_THAT(copied, ContainsSubstring("rank 1 calls broadcast of 8 f32 from rank 1"));
  const auto gather_to = [](int root) {
    return [root](Communicator& comm, Group&) {
      Floats part(8), whole(16);
      comm.gather(tensor(part), tensor(whole), root, "x");
    };
  };
  const std::string gathered = disagreement(gather_to(0), gather_to(1));
  CHECK_THAT(gathered, ContainsSubstring("to rank 0"));
  CHECK_THAT(gathered, ContainsSubstring("to rank 1"));
}

TEST_CASE("the same calls in another order are named") {
  const std::string text = disagreement(
      [](auto& comm, auto&) {
        all_reduce(comm, 8, "first");
        comm.barrier("second");
      },
      [](auto& comm, auto&) {
        comm.barrier("second");
        all_reduce(comm, 8, "first");
      });
  CHECK_THAT(text, ContainsSubstring("rank 0 calls all_reduce of 8 f32 \"first\" (call 1)"));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls barrier \"second\" (call 1)"));
}

TEST_CASE("a rank that left out a call is found at the next one") {
  const std::string text = disagreement(
      [](auto& comm, auto&) {
        all_reduce(comm, 8, "layer 0");
        all_reduce(comm, 8, "layer 1");
        comm.barrier("end");
      },
      [](auto& comm, auto&) {
        all_reduce(comm, 8, "layer 0");
        comm.barrier("end");
      });
  CHECK_THAT(text, ContainsSubstring("\"layer 1\" (call 2)"));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls barrier \"end\" (call 2)"));
}

TEST_CASE("the one rank of many that differs is named") {
  const auto ends = on_ranks(
      5, 60s, [](Communicator& comm, Group&) { all_reduce(comm, comm.rank() == 3 ? 9 : 8); });
  std::string text;
  for (const RankEnd& end : ends)
    if (!end.aborted) text = end.error;
  CHECK_THAT(text, ContainsSubstring("rank 0 calls all_reduce of 8"));
  CHECK_THAT(text, ContainsSubstring("rank 3 calls all_reduce of 9"));
}

TEST_CASE("a receiver that expects something else names both sides") {
  const std::string text = disagreement(
      [](auto& comm, auto&) {
        Floats x(8);
        comm.send(tensor(x), 1, "out");
        comm.barrier("end");
      },
      [](auto& comm, auto&) {
        Floats x(4);
        comm.recv(tensor(x), 0, "in");
        comm.barrier("end");
      });
  CHECK_THAT(text, ContainsSubstring("rank 0 calls send of 8 f32 to rank 1 \"out\""));
  CHECK_THAT(text, ContainsSubstring("rank 1 calls recv of 4 f32 from rank 0 \"in\""));
}

TEST_CASE("the host group is audited like the tensors") {
  const std::string sizes =
      disagreement([](auto&, auto& group) { group.exchange(std::vector<std::byte>(8)); },
                   [](auto&, auto& group) { group.exchange(std::vector<std::byte>(4)); });
  CHECK_THAT(sizes, ContainsSubstring("host_exchange of 8 bytes"));
  CHECK_THAT(sizes, ContainsSubstring("host_exchange of 4 bytes"));
  const auto broadcast_from = [](int root) {
    return [root](Communicator&, Group& group) {
      std::vector<std::byte> bytes(8);
      group.broadcast(bytes, root);
    };
  };
  CHECK_THAT(disagreement(broadcast_from(0), broadcast_from(1)),
             ContainsSubstring("host_broadcast"));
  CHECK_THAT(
      disagreement([](auto&, auto& group) { group.barrier(); },
                   [](auto& comm, auto&) { comm.barrier("x"); }),
      ContainsSubstring("rank 0 calls host_barrier") && ContainsSubstring("rank 1 calls barrier"));
}

TEST_CASE("a rank that never comes is named within the time-out and a second") {
  const std::vector<std::pair<RankBody, std::string>> waits = {
      {[](auto& comm, auto&) { all_reduce(comm, 8, "o_proj"); }, "all_reduce of 8 f32 \"o_proj\""},
      {[](auto&, auto& group) { group.barrier(); }, "host_barrier"},
      {[](auto& comm, auto&) {
         Floats x(8);
         comm.recv(tensor(x), 2, "in");
       },
       "recv of 8 f32 from rank 2 \"in\""},
      {[](auto& comm, auto&) {  // too long to lie in the hub until it is taken
         Floats x(100000);
         comm.send(tensor(x), 2, "out");
       },
       "send of 100000 f32 to rank 2 \"out\""}};
  for (const auto& [body, call] : waits) {
    const auto ends = on_ranks(3, 300ms, [&wait = body](Communicator& comm, Group& group) {
      if (comm.rank() == 2)
        std::this_thread::sleep_for(700ms);
      else
        wait(comm, group);
    });
    std::string text;
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK_FALSE(ends[r].error.empty());
      CHECK(ends[r].after < 1300ms);
      if (ends[r].aborted) continue;
      text = ends[r].error;
      CHECK(ends[r].of_kind_rank);
      CHECK(ends[r].after >= 300ms);
    }
    CHECK_THAT(text, ContainsSubstring("for rank 2") && ContainsSubstring("0.3 s") &&
                         ContainsSubstring(call));
  }
}

TEST_CASE("a rank that has finished is not waited for") {
  const auto ends = on_ranks(3, 60s, [](Communicator& comm, Group&) {
    comm.barrier("start");
    if (comm.rank() != 1) all_reduce(comm, 8, "o_proj");
  });
  CHECK(ends[1].error.empty());
  std::string text;
  for (const std::size_t r : {0u, 2u}) {
    CHECK_FALSE(ends[r].error.empty());
    CHECK(ends[r].after < 10s);
    if (!ends[r].aborted) text = ends[r].error;
  }
  CHECK_THAT(text, ContainsSubstring("rank 1 has already finished") &&
                       ContainsSubstring("all_reduce of 8 f32 \"o_proj\""));
}

TEST_CASE("what a rank sent before it finished still arrives") {
  std::vector<float> received(3);
  const auto ends = on_ranks(2, 60s, [&](Communicator& comm, Group&) {
    Floats x{1, 2, 3};
    if (comm.rank() == 0) return comm.send(tensor(x), 1, "x");
    std::this_thread::sleep_for(50ms);
    comm.recv(tensor(received), 0, "x");
  });
  CHECK(errors_of(ends) == "");
  CHECK(received == Floats{1, 2, 3});
}

TEST_CASE("a rank that throws stops the others at once") {
  for (const int thrower : {0, 2, 3}) {
    const auto ends = on_ranks(4, 60s, [thrower](Communicator& comm, Group& group) {
      for (int i = 0; i < 10; ++i) {
        if (i == 5 && comm.rank() == thrower) throw std::runtime_error("out of patience");
        if (i % 2 == 0) all_reduce(comm, 20000);
        if (i % 2 == 1) group.barrier();
      }
    });
    for (int r = 0; r < 4; ++r) {
      const RankEnd& end = ends[static_cast<std::size_t>(r)];
      CHECK(end.aborted == (r != thrower));
      CHECK(end.after < 10s);
    }
    CHECK(ends[static_cast<std::size_t>(thrower)].error == "out of patience");
  }
}

TEST_CASE("the first reason to stop is the one that is kept") {
  ThreadHub hub(2, 60s);
  CHECK_FALSE(hub.aborted());
  hub.abort("the cause");
  hub.abort("a consequence");
  CHECK(hub.aborted());
  CHECK(hub.abort_reason() == "the cause");
  ThreadGroup group(hub, 0);
  CHECK_THROWS_AS(group.barrier(), Aborted);
}

TEST_CASE("slow ranks on a busy machine are not taken for lost ones") {
  std::atomic<bool> busy{true};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&busy] {
      while (busy.load(std::memory_order_relaxed)) {
      }
    });
  const auto ends = on_ranks(8, 5s, [](Communicator& comm, Group& group) {
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(comm.rank()), i);
      std::this_thread::sleep_for(std::chrono::microseconds(bits % 5000));
      if (i % 4 == 3)
        group.barrier();
      else
        all_reduce(comm, 100);
    }
  });
  busy = false;
  for (std::thread& other : others) other.join();
  CHECK(errors_of(ends) == "");
}

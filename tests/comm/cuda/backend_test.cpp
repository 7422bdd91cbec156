// The whole way of a program: choosing the platform, and running ranks on it.
#include <vector>

#include "common/core/error.h"
#include "common/core/platform.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/cuda/on_gpu_ranks.h"

using namespace tp;

namespace {

Options asked(const std::string& comm, std::int64_t tp) {
  Options options;
  options.device = "cuda";
  options.comm = comm;
  options.tp = tp;
  return options;
}

Platform run(const Options& asked_for) {
  Options options = asked_for;
  const Platform platform = choose_platform(options);
  options.device = platform.device;
  options.comm = platform.comm;
  const auto outputs = run_ranks(Launch::from(options), [](RankContext& ctx, RankOutput& out) {
    Tensor x = ctx.device.allocate({3}, DType::f32, "x");
    const std::vector<float> mine(3, static_cast<float>(ctx.rank + 1));
    ctx.device.write(view_of(mine.data(), {3}), x);
    ctx.comm.all_reduce(x, "x");
    out.keep("x", x);
  });
  const auto sum = static_cast<float>(options.tp * (options.tp + 1) / 2);
  for (const RankOutput& out : outputs) {
    CHECK(out.tensor("x").row<float>(2)[0] == sum);
    CHECK(out.ledger.total(Op::all_reduce).calls == 1);
  }
  return platform;
}

}  // namespace

TEST_CASE("ranks run on the platform that was chosen") {
  if (!runs_here({"GPUs", false, {}, false}, 1)) return;
  CHECK_THAT(run(asked("peer", 1)).text, ContainsSubstring("1 rank on 1 GPU"));
  CHECK_THAT(run(asked("peer", 3)).text, ContainsSubstring("3 ranks on "));
  if (!runs_here({"GPUs", false, {}, false}, 2)) return;
  CHECK(run(asked("nccl", 2)).comm == "nccl");
  CHECK(run(asked("auto", 2)).comm == "nccl");
}

// In processes of their own, because the emulation reads its environment once.
TEST_CASE("wrong data between emulated GPUs is avoided or refused", "[.wrong_peer]") {
  const Platform platform = run(asked("auto", 2));
  CHECK(platform.comm == "peer-staged");
  CHECK_THAT(platform.text, ContainsSubstring("through the host") &&
                                ContainsSubstring("from GPU 0 to GPU 1 by a copy"));
  try {
    run(asked("peer", 2));
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::rank);
    CHECK_THAT(e.what(), ContainsSubstring("from GPU 0 to GPU 1") && ContainsSubstring("IOMMU"));
  }
}

TEST_CASE("emulated GPUs without access to each other copy through the host", "[.no_peer]") {
  for (const int tp : {2, 4}) {
    const Platform platform = run(asked("peer", tp));
    CHECK(platform.comm == "peer-staged");
    CHECK_THAT(platform.text, ContainsSubstring("through the host"));
  }
  CHECK(run(asked("auto", 2)).comm == "nccl");
}

TEST_CASE("no emulated GPU at all is said", "[.no_gpu]") {
  try {
    choose_platform(asked("auto", 2));
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::device);
    CHECK_THAT(e.what(), ContainsSubstring("no GPU visible"));
  }
  Options options = asked("auto", 2);
  options.device = "auto";
  CHECK(choose_platform(options).device == "cpu");
}

TEST_CASE("NCCL's text has the GPUs and the variables") {
  const std::string text = nccl_info();
  CHECK_THAT(text, ContainsSubstring("NCCL 2.") && ContainsSubstring("NCCL_SOCKET_IFNAME"));
  CHECK_THAT(text, ContainsSubstring("GPU"));
}

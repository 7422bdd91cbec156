// What only NCCL needs: the watch over its work on the GPU, and captured steps.
#include "common/comm/cuda/nccl.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "common/comm/forwarding.h"
#include "common/comm/thread_group.h"
#include "tests/catch.h"
#include "tests/comm/cuda/on_gpu_ranks.h"

using namespace tp;
using namespace tp::cuda;
using namespace std::chrono_literals;

namespace {

const Connection kNccl{"NCCL", true, {}, false};

// A group that does not compare calls, as if there were no audit.
class Unaudited final : public ForwardingGroup {
  using ForwardingGroup::ForwardingGroup;
  void meet(const Call& /*call*/) override {}
};

std::vector<RankEnd> without_audit(std::chrono::milliseconds timeout, const GpuBody& body) {
  return on_threads(2, timeout, [&](ThreadHub& hub, int rank) {
    Unaudited group(std::make_unique<ThreadGroup>(hub, rank));
    CudaDeviceOptions options;
    options.gpu = rank;
    CudaDevice device(options);
    const auto comm = make_nccl_communicator(device, group, timeout);
    body({*comm, device, group});
    device.synchronize();
  });
}

}  // namespace

TEST_CASE("NCCL says its version") {
  const std::optional<std::string> version = nccl_version();
  REQUIRE(version);
  CHECK(std::count(version->begin(), version->end(), '.') == 2);
}

TEST_CASE("a rank that waits for NCCL on its GPU hears that another one failed") {
  if (!runs_here(kNccl, 2)) return;
  const auto ends = without_audit(60s, [](const GpuContext& ctx) {
    Tensor x = ctx.device.allocate({8}, DType::f32, "test");
    if (ctx.comm.rank() == 0) {
      std::this_thread::sleep_for(200ms);
      throw std::runtime_error("gone");
    }
    ctx.comm.all_reduce(x, "o_proj");
    ctx.device.synchronize();
  });
  CHECK(ends[0].error == "gone");
  CHECK(ends[1].aborted);
  CHECK(ends[1].after < 10s);
}

TEST_CASE("a rank that waits for NCCL on its GPU gives up after the time-out") {
  if (!runs_here(kNccl, 2)) return;
  const auto ends = without_audit(500ms, [](const GpuContext& ctx) {
    Tensor x = ctx.device.allocate({8}, DType::f32, "test");
    if (ctx.comm.rank() == 0) return std::this_thread::sleep_for(1500ms);
    ctx.comm.all_reduce(x, "o_proj");
    ctx.device.synchronize();
  });
  CHECK_THAT(ends[1].error, ContainsSubstring("rank 1 waited 0.5 s for GPU 1") &&
                                ContainsSubstring("all_reduce of 8 f32 \"o_proj\" (call 1)") &&
                                ContainsSubstring("--timeout-s"));
  CHECK(ends[1].of_kind_rank);
  CHECK(ends[1].after >= 500ms);
  CHECK(ends[1].after < 2500ms);
}

TEST_CASE("a captured step with NCCL gives what the step gives") {
  if (!runs_here(kNccl, 2)) return;
  std::vector<std::vector<float>> results(2);
  const auto ends = on_gpu_ranks(kNccl, 2, 60s, [&](const GpuContext& ctx) {
    const auto step = [&](TensorView x) {
      ctx.comm.all_reduce(x, "layer");
      ctx.device.add(x, x);
    };
    CHECK(ctx.comm.can_capture());
    Tensor x = ctx.upload(std::vector<float>{1, 2});
    step(x);  // NCCL connects the ranks: 4 8
    ctx.device.begin_capture();
    ctx.comm.start_recording();
    step(x);
    const std::vector<Call> calls = ctx.comm.stop_recording();
    const auto captured = ctx.device.end_capture();
    for (int i = 0; i < 3; ++i) {
      ctx.device.replay(*captured);
      ctx.comm.replayed(calls);
    }
    results[static_cast<std::size_t>(ctx.comm.rank())] = ctx.download<float>(x);
    CHECK(ctx.comm.ledger().total(Op::all_reduce, "layer").calls == 4);
  });
  REQUIRE(errors_of(ends) == "");
  for (const auto& result : results) CHECK(result == std::vector<float>{256, 512});
}

// In a process of its own, because the emulation reads once from the environment which call fails:
// the third one of rank 1.
TEST_CASE("an error that NCCL reports later stops all ranks", "[.nccl_fault]") {
  const auto ends = on_gpu_ranks(kNccl, 2, 60s, [](const GpuContext& ctx) {
    Tensor x = ctx.device.allocate({8}, DType::f32, "test");
    for (const char* label : {"first", "second", "third", "fourth"}) ctx.comm.all_reduce(x, label);
    ctx.device.synchronize();
  });
  for (const RankEnd& end : ends) {
    CHECK_FALSE(end.error.empty());
    CHECK((end.aborted || end.of_kind_rank));
    CHECK(end.after < 10s);
  }
  CHECK_THAT(errors_of(ends), ContainsSubstring("NCCL on rank"));
}

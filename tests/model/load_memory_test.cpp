// How much memory loading takes, as the system sees it. Needs a process of its own: memory that other
// tests have given back would be used again.
#include <atomic>
#include <fstream>
#include <string>

#include <malloc.h>

#include "common/model/load_plan.h"
#include "tests/catch.h"
#include "tests/checkpoint.h"
#include "tests/engine/run_engine.h"

namespace tp {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizers take memory of their own
#else
constexpr bool kSanitized = false;
#endif

// Memory of this process that is no part of a file, in bytes. [man 5 proc: RssAnon]
std::int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == "RssAnon:" && status >> kib) return kib * 1024;
  return 0;
}

TEST_CASE("loading takes the memory of the shards and little more") {
  if (kSanitized || anonymous_bytes() == 0) {
    WARN("skipped: a sanitizer, or a system without RssAnon");
    return;
  }
  const TempFolder folder;
  CheckpointSizes sizes{.hidden = 1024,
                        .intermediate = 2816,
                        .layers = 3,
                        .heads = 16,
                        .kv_heads = 4,
                        .head_dim = 64,
                        .vocab = 2000};
  sizes.dtype = DType::bf16;
  sizes.fused = GENERATE(false, true);
  const std::size_t shift = GENERATE(0, 1);  // an unaligned file needs no more
  write_checkpoint(folder.path(), sizes, shift);
  const Loaded model(folder.path());
  // Larger pieces of memory come from the system and go back to it: none is used a second time.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 10);
  for (const int tp_size : {1, 2, 4}) {
    const LoadPlan plan = LoadPlan::of(model.weights, model.config, tp_size);
    std::int64_t shards = 0;
    for (int rank = 0; rank < tp_size; ++rank) shards += plan.bytes(rank);
    REQUIRE(shards > 70'000'000);

    const std::int64_t before = anonymous_bytes();
    std::atomic<std::int64_t> peak{0};
    const auto look = [&] {
      const std::int64_t now = anonymous_bytes();
      for (std::int64_t known = peak; now > known && !peak.compare_exchange_weak(known, now);) {
      }
    };
    const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput&) {
      ctx.device.observe_uploads([&](ConstTensorView, const CopyFindings&) { look(); });
      const Decoder decoder(ctx, model.config, model.weights,
                            DecoderShard::of(model.config, ctx.rank, tp_size),
                            DecoderLimits::contiguous(1, 1, 1));
      ctx.group.barrier();  // all ranks hold their shards
      look();
      ctx.group.barrier();
    });
    constexpr std::int64_t kSmall = 2 << 20;  // stacks, messages, activations of one token
    const std::int64_t taken = peak - before;
    INFO("tp " << tp_size << ": shards " << shards << ", taken " << taken);
    CHECK(taken < shards + kSmall);
    CHECK(taken > shards - kSmall);  // the measurement works
    for (int rank = 0; rank < tp_size; ++rank) {
      const MemoryCounter& memory = ranks[static_cast<std::size_t>(rank)].memory;
      CHECK(memory.use("weights").peak_bytes == plan.bytes(rank));  // no pads: 2000 ids
      std::int64_t others = 0;
      for (const auto& [tag, use] : memory.uses())
        if (tag != "weights") others += use.peak_bytes;
      CHECK(others < 256 << 10);
    }
  }
}

}  // namespace
}  // namespace tp

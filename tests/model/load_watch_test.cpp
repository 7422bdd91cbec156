#include "common/model/load_watch.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/checkpoint.h"
#include "tests/engine/run_engine.h"

namespace tp {
namespace {

using namespace std::chrono_literals;

// A small model in a folder; its weights can be spoiled before it is opened.
class SpoiledModel {
 public:
  explicit SpoiledModel(bool fused = false) {
    CheckpointSizes sizes;
    sizes.fused = fused;
    write_checkpoint(folder_.path(), sizes);
  }

  // Replaces an element.
  void spoil(const std::string& name, std::int64_t row, std::int64_t column, float value) {
    std::int64_t offset = 0;
    {
      const Loaded model(folder_.path());
      const ConstTensorView tensor = model.weights.tensor(name);
      offset = model.weights.files().place_of(tensor.data).offset +
               (row * tensor.row_elements() + column) * 4;
    }
    std::fstream file(folder_.path() / "model.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }

  // The notes of every rank.
  std::vector<std::vector<std::string>> notes(int tp_size, std::optional<DType> store_as = {}) {
    const ModelConfig config = ModelConfig::load(folder_.path());
    const Weights weights = Weights::open(folder_.path(), config, store_as);
    std::vector<std::vector<std::string>> notes(static_cast<std::size_t>(tp_size));
    run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput&) {
      const LoadWatch watch(ctx.device, weights, nullptr);
      const Decoder decoder(ctx, config, weights, DecoderShard::of(config, ctx.rank, tp_size),
                            DecoderLimits::contiguous(1, 1, 1));
      notes[static_cast<std::size_t>(ctx.rank)] = watch.notes(ctx);
    });
    return notes;
  }

 private:
  TempFolder folder_;
};

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("load watch - finite weights give no notes") {
  SpoiledModel model;
  for (const auto& notes : model.notes(2)) CHECK(notes.empty());
}

TEST_CASE("load watch - weights that are not finite are named, with the ranks that hold them") {
  SpoiledModel model(GENERATE(false, true));
  model.spoil("model.layers.1.self_attn.k_proj.weight", 3, 7, kNan);  // a row of rank 1
  model.spoil("model.layers.0.mlp.down_proj.weight", 2, 1, kInf);     // a column of rank 0
  model.spoil("model.layers.0.mlp.down_proj.weight", 5, 1, -kInf);
  model.spoil("model.layers.0.mlp.down_proj.weight", 5, 23, kNan);  // a column of rank 1
  model.spoil("model.norm.weight", 0, 0, kNan);                     // on every rank
  const std::vector<std::string> expected{
      "model.layers.0.mlp.down_proj.weight: values that are NaN or infinite: 2 on rank 0, 1 on "
      "rank 1",
      "model.layers.1.self_attn.k_proj.weight: values that are NaN or infinite: 1 on rank 1",
      "model.norm.weight: values that are NaN or infinite: 1 on rank 0, 1 on rank 1"};
  for (const auto& notes : model.notes(2)) CHECK(notes == expected);
  for (const auto& notes : model.notes(2, DType::bf16)) CHECK(notes == expected);
}

TEST_CASE("load watch - a value that bf16 does not have is refused by the name of its tensor") {
  SpoiledModel model;
  model.spoil("model.layers.1.mlp.up_proj.weight", 20, 3, 3.4e38f);  // bf16 ends at 3.39e38
  CHECK(model.notes(2)[0].empty());                                  // as it is: f32
  try {
    model.notes(2, DType::bf16);
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK_THAT(e.what(), ContainsSubstring("model.layers.1.mlp.up_proj.weight: 1 of its values") &&
                             ContainsSubstring("--dtype f32"));
  }
}

TEST_CASE("load watch - progress is told after a second, then now and then, and removed") {
  std::vector<std::string> written;
  const LoadProgress::Clock::time_point start{};
  LoadProgress progress(
      200'000'000, [&](const std::string& text) { written.push_back(text); }, start);
  progress.add(20'000'000, start + 999ms);
  CHECK(written.empty());
  progress.add(30'000'000, start + 1000ms);
  CHECK(written == std::vector<std::string>{"\rloading weights:  25 % of rank 0's 200 MB"});
  progress.add(50'000'000, start + 1050ms);  // too soon
  CHECK(written.size() == 1);
  progress.add(100'000'000, start + 1100ms);
  CHECK(written.back() == "\rloading weights: 100 % of rank 0's 200 MB");
  progress.finish();
  CHECK(written.back() == "\r\x1b[K");
  progress.finish();
  CHECK(written.size() == 3);
}

TEST_CASE("load watch - a short loading and a missing terminal say nothing") {
  std::vector<std::string> written;
  const LoadProgress::Clock::time_point start{};
  LoadProgress quick(
      0, [&](const std::string& text) { written.push_back(text); }, start);
  quick.add(0, start + 10ms);
  quick.finish();
  CHECK(written.empty());
  LoadProgress silent(10, {}, start);
  silent.add(10, start + 5s);
  silent.finish();
}

TEST_CASE("load watch - it sees the bytes that are copied") {
  const TempFolder folder;
  write_checkpoint(folder.path(), {});
  const Loaded model(folder.path());
  const ModelConfig& config = model.config;
  run_ranks(launch_of(1), [&](RankContext& ctx, RankOutput&) {
    std::string last;
    LoadProgress progress(
        ctx.tp_size, [&](const std::string& text) { last = text; },
        LoadProgress::Clock::now() - 1h);
    const LoadWatch watch(ctx.device, model.weights, &progress);
    ctx.device.upload(model.weights.final_norm(), {}, "weights");  // 8 f32
    if (last != "\rloading weights: 3200 % of rank 0's 0 MB") throw input_error(last);
    if (config.hidden_size != 8) throw input_error("hidden");
  });
}

}  // namespace
}  // namespace tp

// The plan of what each rank reads, against numbers worked out by hand and against the loading.
#include "common/model/load_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/checkpoint.h"
#include "tests/engine/run_engine.h"

namespace tp {
namespace {

const PlannedTensor& tensor_of(const LoadPlan& plan, const std::string& name) {
  const auto found = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                                  [&](const PlannedTensor& t) { return t.name == name; });
  REQUIRE(found != plan.tensors.end());
  return *found;
}

// The bytes of a shard, read through its pieces.
std::string planned_bytes(const Weights& weights,
                          const PlannedTensor& tensor,
                          const BytePieces& pieces) {
  const std::string_view file = weights.files().files().at(tensor.file).text();
  std::string bytes;
  for (std::int64_t i = 0; i < pieces.count; ++i)
    bytes += file.substr(static_cast<std::size_t>(pieces.first + i * pieces.stride),
                         static_cast<std::size_t>(pieces.bytes));
  return bytes;
}

std::string bytes_in(ConstTensorView tensor) {
  Tensor copy = Tensor::on_host(tensor.shape, tensor.dtype);
  copy_host(tensor, copy);
  return {reinterpret_cast<const char*>(copy.view().data),
          static_cast<std::size_t>(tensor.bytes())};
}

// Loads the model on some ranks, each of which reads what the plan says.
void check_loading(const Loaded& model, int tp_size) {
  const LoadPlan plan = LoadPlan::of(model.weights, model.config, tp_size);
  const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput&) {
    Decoder(ctx, model.config, model.weights, DecoderShard::of(model.config, ctx.rank, tp_size),
            DecoderLimits::contiguous(1, 1, 1));
  });
  for (int rank = 0; rank < tp_size; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    CHECK(ranks[r].memory.uploaded_bytes() == plan.bytes(rank));
    std::int64_t held = 0;
    for (const PlannedTensor& tensor : plan.tensors)
      held += tensor.shards[r].local.elements() *
              static_cast<std::int64_t>(
                  size_of(tensor.dtype == DType::f16 ? DType::f32 : tensor.dtype));
    CHECK(ranks[r].memory.use("weights").peak_bytes == held);
  }
}

TEST_CASE("load plan - rows are one piece and columns one in each row") {
  const TempFolder folder;
  CheckpointSizes sizes;  // 4 query heads and 2 KV heads of 2, hidden 8, intermediate 24
  sizes.dtype = DType::bf16;
  sizes.biases = true;
  write_checkpoint(folder.path(), sizes);
  const Loaded model(folder.path());
  const LoadPlan plan = LoadPlan::of(model.weights, model.config, 2);
  const std::string layer = "model.layers.1.";
  const auto begin_of = [&](const std::string& name) {
    return model.weights.files().place_of(model.weights.tensor(name).data).offset;
  };
  const auto check = [&](const std::string& name, SplitAxis axis, const Shape& local,
                         const BytePieces& of_0, const BytePieces& of_1) {
    const PlannedTensor& tensor = tensor_of(plan, name);
    CHECK(tensor.axis == axis);
    REQUIRE(tensor.shards.size() == 2);
    const std::int64_t begin = begin_of(name);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BytePieces pieces = tensor.shards[rank].pieces;
      pieces.first -= begin;
      CHECK(pieces == (rank == 0 ? of_0 : of_1));
      CHECK(tensor.shards[rank].local == local);
    }
  };
  using enum SplitAxis;
  check(layer + "self_attn.q_proj.weight", rows, {4, 8}, {0, 64, 1, 0}, {64, 64, 1, 0});
  check(layer + "self_attn.q_proj.bias", rows, {4}, {0, 8, 1, 0}, {8, 8, 1, 0});
  check(layer + "self_attn.k_proj.weight", rows, {2, 8}, {0, 32, 1, 0}, {32, 32, 1, 0});
  check(layer + "self_attn.o_proj.weight", columns, {8, 4}, {0, 8, 8, 16}, {8, 8, 8, 16});
  check(layer + "self_attn.o_proj.bias", none, {8}, {0, 16, 1, 0}, {0, 16, 1, 0});
  check(layer + "mlp.up_proj.weight", rows, {12, 8}, {0, 192, 1, 0}, {192, 192, 1, 0});
  check(layer + "mlp.down_proj.weight", columns, {8, 12}, {0, 24, 8, 48}, {24, 24, 8, 48});
  check(layer + "mlp.down_proj.bias", none, {8}, {0, 16, 1, 0}, {0, 16, 1, 0});
  check(layer + "input_layernorm.weight", none, {8}, {0, 16, 1, 0}, {0, 16, 1, 0});
  // 29 ids make 15 rows per rank, the last of them a pad without bytes.
  check("lm_head.weight", rows, {15, 8}, {0, 240, 1, 0}, {240, 224, 1, 0});
}

TEST_CASE("load plan - KV heads repeat on more ranks than there are") {
  const TempFolder folder;
  write_checkpoint(folder.path(), {});
  const Loaded model(folder.path());
  const LoadPlan plan = LoadPlan::of(model.weights, model.config, 4);
  const PlannedTensor& k = tensor_of(plan, "model.layers.0.self_attn.k_proj.weight");
  CHECK(k.shards[0].pieces == k.shards[1].pieces);
  CHECK(k.shards[2].pieces == k.shards[3].pieces);
  CHECK(k.shards[0].part == Range{0, 2});
  CHECK(k.shards[3].part == Range{2, 4});
}

TEST_CASE("load plan - its pieces are the bytes of the parts, fused or not") {
  const TempFolder folder;
  CheckpointSizes sizes;
  sizes.biases = true;
  sizes.fused = GENERATE(false, true);
  const std::size_t shift = GENERATE(0, 1, 2);  // unaligned files, too
  write_checkpoint(folder.path(), sizes, shift);
  const Loaded model(folder.path());
  for (const int tp_size : {1, 2, 3, 4}) {
    const LoadPlan plan = LoadPlan::of(model.weights, model.config, tp_size);
    for (const PlannedTensor& tensor : plan.tensors) {
      const ConstTensorView whole = model.weights.tensor(tensor.name);
      for (const PlannedShard& shard : tensor.shards) {
        const ConstTensorView part = tensor.axis == SplitAxis::columns
                                         ? whole.columns_in(shard.part)
                                         : whole.rows_in(shard.part.within(whole.rows()));
        CHECK(planned_bytes(model.weights, tensor, shard.pieces) == bytes_in(part));
      }
    }
  }
}

TEST_CASE("load plan - ranks copy what is planned and nothing else") {
  SECTION("the bundled model") {
    const Loaded model;
    for (const int tp_size : {1, 2, 3, 8}) check_loading(model, tp_size);
  }
  SECTION("biases, fused, untied, with pads, unaligned") {
    const TempFolder folder;
    CheckpointSizes sizes;
    sizes.biases = true;
    sizes.fused = true;
    write_checkpoint(folder.path(), sizes, 1);
    const Loaded model(folder.path());
    for (const int tp_size : {1, 2, 3, 4}) check_loading(model, tp_size);
  }
}

TEST_CASE("load plan - tensors are planned in the file that the index names") {
  const TempFolder folder;
  write_checkpoint(folder.path(), {});
  // A second file with another final norm, which alone is taken from there.
  SafetensorsFile second;
  second.add("model.norm.weight", "F32", {8}, bytes_of(std::vector<float>(8, 0.5f)));
  folder.write("second", second.bytes());
  std::string map;
  const std::vector<std::string> names = Loaded(folder.path()).weights.tensor_names();
  for (const std::string& name : names)
    map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name,
                       name == "model.norm.weight" ? "second" : "model.safetensors");
  folder.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const Loaded model(folder.path());
  check_loading(model, 2);
  const LoadPlan plan = LoadPlan::of(model.weights, model.config, 2);
  const PlannedTensor& norm = tensor_of(plan, "model.norm.weight");
  CHECK(norm.file == 1);
  CHECK(planned_bytes(model.weights, norm, norm.shards[1].pieces) ==
        bytes_of(std::vector<float>(8, 0.5f)));
  CHECK(tensor_of(plan, "lm_head.weight").file == 0);
}

TEST_CASE("load plan - a page counts once however many pieces it has") {
  // Tensors begin at byte 8192 of the file; rows of 256 bytes, 16 to a page.
  LoadPlan plan;
  const auto add = [&](std::size_t file, const BytePieces& pieces) {
    PlannedTensor tensor{"w", {1}, DType::f32};
    tensor.file = file;
    tensor.shards.push_back({{}, {1}, pieces});
    plan.tensors.push_back(tensor);
  };
  add(0, {8192, 4096, 1, 0});
  CHECK(plan.pages(0) == 1);
  add(0, {12288, 128, 64, 256});  // columns: 64 rows of 256 bytes are 4 pages
  CHECK(plan.pages(0) == 5);
  add(0, {12416, 128, 64, 256});  // the other columns are on the same pages
  CHECK(plan.pages(0) == 5);
  add(0, {100000, 1, 3, 8192});  // one byte on every other page
  CHECK(plan.pages(0) == 8);
  add(0, {4095, 2, 1, 0});  // across a border
  CHECK(plan.pages(0) == 10);
  add(1, {8192, 4096, 1, 0});  // the same place in another file
  CHECK(plan.pages(0) == 11);
  add(1, {0, 0, 1, 0});  // no bytes
  CHECK(plan.pages(0) == 11);
  add(0, {0, 200000, 1, 0});  // around all of file 0
  CHECK(plan.pages(0) == 49 + 1);
}

}  // namespace
}  // namespace tp

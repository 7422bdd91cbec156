// Checkpoints that store q, k and v, or gate and up, as one matrix.
#include "common/model/fused_layers.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "common/core/compare.h"
#include "common/core/error.h"
#include "common/core/matrix.h"
#include "common/parallel/gated_mlp.h"
#include "common/parallel/sharded_attention.h"
#include "tests/catch.h"
#include "tests/checkpoint.h"
#include "tests/engine/run_engine.h"

namespace tp {
namespace {

std::vector<float> values_of(ConstTensorView tensor) {
  return to_matrix(tensor).values;
}

std::string refusal(const std::filesystem::path& folder) {
  try {
    const Loaded model(folder);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "not refused";
}

// One layer with hidden size 1, so that a row of a matrix is a number: whatever a test adds, and
// zeros or ones for the rest.
class OneLayer {
 public:
  OneLayer(std::int64_t heads, std::int64_t kv_heads, std::int64_t intermediate) {
    folder_.write("config.json",
                  fmt::format(R"({{"model_type": "llama", "hidden_size": 1, "intermediate_size": {},
                                  "num_hidden_layers": 1, "num_attention_heads": {},
                                  "num_key_value_heads": {}, "head_dim": 2, "vocab_size": 3}})",
                              intermediate, heads, kv_heads));
    add("model.embed_tokens", {3, 1}, {1, 2, 3});
    add("lm_head", {3, 1}, {1, 2, 3});
    add("model.norm", {1}, {1});
    add("model.layers.0.input_layernorm", {1}, {1});
    add("model.layers.0.post_attention_layernorm", {1}, {1});
  }

  void add(const std::string& layer,
           const std::vector<std::int64_t>& shape,
           const std::vector<float>& values) {
    file_.add(layer + ".weight", "F32", shape, bytes_of(values));
  }
  // Rows 0, 1, 2, ...
  void add_rows(const std::string& module, std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows));
    std::iota(values.begin(), values.end(), 0.0f);
    add("model.layers.0." + module, {rows, 1}, values);
  }
  void add_columns(const std::string& module, std::int64_t columns) {
    add("model.layers.0." + module, {1, columns},
        std::vector<float>(static_cast<std::size_t>(columns), 1));
  }

  const std::filesystem::path& write() {
    folder_.write("model.safetensors", file_.bytes());
    return folder_.path();
  }

 private:
  TempFolder folder_;
  SafetensorsFile file_;
};

TEST_CASE("fused layers - the rows of each part") {
  ModelConfig config;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 2;
  config.intermediate_size = 5;
  const auto check = [&](const char* name, const char* tensor, Range rows, std::int64_t all) {
    const auto part = fused_part(config, name);
    REQUIRE(part);
    CHECK(part->tensor == tensor);
    CHECK(part->rows == rows);
    CHECK(part->fused_rows == all);
  };
  const char* const qkv = "model.layers.3.self_attn.qkv_proj.weight";
  check("model.layers.3.self_attn.q_proj.weight", qkv, {0, 8}, 16);
  check("model.layers.3.self_attn.k_proj.weight", qkv, {8, 12}, 16);
  check("model.layers.3.self_attn.v_proj.weight", qkv, {12, 16}, 16);
  check("model.layers.3.self_attn.v_proj.bias", "model.layers.3.self_attn.qkv_proj.bias", {12, 16},
        16);
  check("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_up_proj.weight", {5, 10}, 10);
  for (const char* name :
       {"model.layers.3.self_attn.o_proj.weight", "model.layers.3.self_attn.q_norm.weight",
        "model.layers.0.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"})
    CHECK_FALSE(fused_part(config, name));
}

TEST_CASE("fused layers - a rank takes its rows of gate and of up") {
  OneLayer layer(2, 2, 4);
  layer.add_rows("self_attn.qkv_proj", 12);
  layer.add_columns("self_attn.o_proj", 4);
  layer.add("model.layers.0.mlp.gate_up_proj", {8, 1}, {1, 2, 3, 4, 1, -1, 2, 0.5f});
  layer.add_columns("mlp.down_proj", 4);
  const Loaded model(layer.write());
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const GatedMlp mlp{
        ColumnParallelLinear::shard_fused(ctx, {model.weights.linear(0, "mlp.gate_proj"),
                                                model.weights.linear(0, "mlp.up_proj")}),
        RowParallelLinear::shard(ctx, model.weights.linear(0, "mlp.down_proj"))};
    out.keep("rows", mlp.gate_up.weight_local);
    const Matrix x(1, 1, {1});
    Matrix gate_up(1, 4), activated(1, 2), y(1, 1);
    const PartialSum partial =
        mlp.partial(ctx, x.view(), gate_up.view(), activated.view(), y.view());
    out.keep("partial", partial.addend);
    mlp.down.finish(ctx, partial, "down_proj");
    out.keep("sum", y.view());
  });
  CHECK(values_of(ranks[0].tensor("rows")) == std::vector<float>{1, 2, 1, -1});
  CHECK(values_of(ranks[1].tensor("rows")) == std::vector<float>{3, 4, 2, 0.5f});
  const auto near = [&](std::size_t rank, const char* name, float expected) {
    return std::abs(values_of(ranks[rank].tensor(name))[0] - expected) < 1e-5f;
  };
  CHECK(near(0, "partial", -1.030536f));
  CHECK(near(1, "partial", 7.679472f));
  CHECK(near(0, "sum", 6.648937f));  // contiguous halves would give 10.567199
  CHECK(near(1, "sum", 6.648937f));
}

TEST_CASE("fused layers - a rank takes its heads of q, k and v") {
  OneLayer layer(4, 2, 4);
  layer.add_rows("self_attn.qkv_proj", 16);
  layer.add_columns("self_attn.o_proj", 8);
  layer.add_rows("mlp.gate_up_proj", 8);
  layer.add_columns("mlp.down_proj", 4);
  const Loaded model(layer.write());
  const auto ranks = run_ranks(launch_of(2), [&](RankContext& ctx, RankOutput& out) {
    const auto linear = [&](const char* module) { return model.weights.linear(0, module); };
    const ShardedAttention attention =
        ShardedAttention::load(ctx,
                               {linear("self_attn.q_proj"), linear("self_attn.k_proj"),
                                linear("self_attn.v_proj"), linear("self_attn.o_proj")},
                               head_shard(4, 2, ctx.rank, 2), 2);
    out.keep("q", attention.q.weight_local);
    out.keep("k", attention.k.weight_local);
    out.keep("v", attention.v.weight_local);
  });
  CHECK(values_of(ranks[0].tensor("q")) == std::vector<float>{0, 1, 2, 3});
  CHECK(values_of(ranks[0].tensor("k")) == std::vector<float>{8, 9});
  CHECK(values_of(ranks[0].tensor("v")) == std::vector<float>{12, 13});
  CHECK(values_of(ranks[1].tensor("q")) == std::vector<float>{4, 5, 6, 7});
  CHECK(values_of(ranks[1].tensor("k")) == std::vector<float>{10, 11});
  CHECK(values_of(ranks[1].tensor("v")) == std::vector<float>{14, 15});
}

TEST_CASE("fused layers - parts that do not divide are refused although the whole does") {
  CHECK_THROWS_WITH(check_tp_size({2, 2, 3}, 2, false),
                    ContainsSubstring("intermediate_size=3 is not a multiple of tp=2"));
}

TEST_CASE("fused layers - a fused checkpoint says what the same one in parts says") {
  const TempFolder in_parts, fused;
  CheckpointSizes sizes;
  sizes.biases = GENERATE(false, true);
  sizes.dtype = GENERATE(DType::f32, DType::bf16);
  write_checkpoint(in_parts.path(), sizes);
  sizes.fused = true;
  write_checkpoint(fused.path(), sizes);
  const Loaded a(in_parts.path()), b(fused.path());
  CHECK(b.weights.notes().empty());
  for (const std::string& name : a.weights.tensor_names())
    CHECK(values_of(a.weights.tensor(name)) == values_of(b.weights.tensor(name)));
  const Request request{{5, 6, 7}, 6, {}, true, {}};
  for (const int tp_size : {1, 2, 4})
    CHECK(run_engine(b, tp_size, {.max_model_len = 16}, {request}).done[0].ids ==
          run_engine(a, tp_size, {.max_model_len = 16}, {request}).done[0].ids);
}

TEST_CASE("fused layers - what is missing or wrong is refused by name") {
  const auto message = [](const std::function<void(OneLayer&)>& add) {
    OneLayer layer(2, 2, 4);
    add(layer);
    layer.add_columns("self_attn.o_proj", 4);
    layer.add_columns("mlp.down_proj", 4);
    return refusal(layer.write());
  };
  // Neither the fused layer nor its parts: the first missing tensor comes first.
  CHECK_THAT(
      message([](OneLayer& layer) { layer.add_rows("mlp.gate_up_proj", 8); }),
      ContainsSubstring("config.json:\n  model.layers.0.self_attn.q_proj.weight is missing"));
  CHECK_THAT(message([](OneLayer& layer) {
               layer.add_rows("self_attn.qkv_proj", 12);
               layer.add_rows("mlp.gate_proj", 4);
             }),
             ContainsSubstring("config.json:\n  model.layers.0.mlp.up_proj.weight is missing"));
  CHECK_THAT(message([](OneLayer& layer) {
               layer.add_rows("self_attn.qkv_proj", 10);
               layer.add_rows("mlp.gate_up_proj", 8);
             }),
             ContainsSubstring("qkv_proj.weight has shape [10, 1], config.json says [12, 1]"));
  CHECK_THAT(message([](OneLayer& layer) {
               layer.add_rows("self_attn.qkv_proj", 12);
               layer.add_rows("self_attn.k_proj", 4);
               layer.add_rows("mlp.gate_up_proj", 8);
             }),
             ContainsSubstring("k_proj.weight is there twice"));
}

TEST_CASE("fused layers - hundreds of missing tensors are counted and not all listed") {
  const TempFolder folder;
  CheckpointSizes sizes;
  sizes.layers = 20;
  write_checkpoint(folder.path(), sizes);
  SafetensorsFile none;
  none.add("transformer.wte.weight", "F32", {1}, bytes_of<float>({1}));
  folder.write("model.safetensors", none.bytes());
  CHECK_THAT(refusal(folder.path()), ContainsSubstring("model.embed_tokens.weight is missing") &&
                                         ContainsSubstring("(and 163 more)"));
}

}  // namespace
}  // namespace tp

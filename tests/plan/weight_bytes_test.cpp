#include "common/plan/weight_bytes.h"

#include <map>

#include "common/core/error.h"
#include "common/parallel/shards.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"

using namespace tp;

namespace {

WeightStorage stored_as(const char* name, std::int64_t group = 128) {
  return {number_format(name), group};
}

// Parameters that a card holds: its bytes, where each number takes one.
std::int64_t held(const ModelConfig& config, const CardPlace& place) {
  return weight_bytes(config, stored_as("bf16"), place).total() / 2;
}

}  // namespace

TEST_CASE("parameters are counted once each") {
  CHECK(parameter_count(shape("llama-3-70b")) == 70'553'706'496);
  CHECK(parameter_count(shape("llama-3.1-405b")) == 405'853'388'800);
  CHECK(parameter_count(qwen3_4b()) == 4'022'468'096);
}

TEST_CASE("a tied head is no second matrix") {
  const std::vector<ModelConfig::Key> keys{
      {"model_type", std::string("qwen3")},      {"hidden_size", std::int64_t{1024}},
      {"intermediate_size", std::int64_t{3072}}, {"num_hidden_layers", std::int64_t{28}},
      {"num_attention_heads", std::int64_t{16}}, {"num_key_value_heads", std::int64_t{8}},
      {"head_dim", std::int64_t{128}},           {"vocab_size", std::int64_t{151936}}};
  std::vector<ModelConfig::Key> tied = keys;
  tied.emplace_back("tie_word_embeddings", true);
  CHECK(parameter_count(ModelConfig::for_plan({}, tied)) == 596'049'920);
  CHECK(parameter_count(ModelConfig::for_plan({}, keys)) == 751'632'384);
  CHECK(held(ModelConfig::for_plan({}, tied), {}) == 596'049'920);
  CHECK(held(ModelConfig::for_plan({}, keys), {}) == 751'632'384);
}

TEST_CASE("the last of several stages has a copy of a tied embedding") {
  const ModelConfig config = qwen3_4b();
  CHECK(held(config, {2, 1, 0, 0}) == 2'011'332'096);
  for (const int rank : {0, 1}) {
    CHECK(held(config, {2, 2, rank, 0}) == 1'102'903'808);
    CHECK(held(config, {2, 2, rank, 1}) == 1'102'906'368);
  }
}

TEST_CASE("stages have each layer once and differ by at most one") {
  for (const std::int64_t layers : {1, 10, 30, 36, 80})
    for (int stages = 1; stages <= layers; ++stages) {
      std::int64_t next = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const Range range = CardPlace{1, stages, 0, stage}.layers(layers);
        CHECK(range.begin == next);
        CHECK(range.size() >= layers / stages);
        CHECK(range.size() <= layers / stages + 1);
        next = range.end;
      }
      CHECK(next == layers);
    }
}

TEST_CASE("weights of a rank are those of its heads with copied KV heads and norms apart") {
  const ModelConfig config = shape("llama-3-70b");
  const WeightStorage bf16 = stored_as("bf16");
  const std::int64_t norms = (2 * 80 + 1) * 8192 * 2;
  const std::int64_t kv = std::int64_t{80} * 2 * 128 * 8192 * 2;  // k and v of one KV head
  const WeightBytes one = weight_bytes(config, bf16, {});
  CHECK(one.total() == 2 * parameter_count(config));
  CHECK(one.replicated == 0);
  const WeightBytes eight = weight_bytes(config, bf16, {8, 1, 3, 0});
  CHECK(eight.replicated == norms);
  CHECK(eight.total() == 17'640'734'720);
  const WeightBytes sixteen = weight_bytes(config, bf16, {16, 1, 5, 0});
  CHECK(sixteen.replicated == norms + kv);
  CHECK(sixteen.total() == 8'989'458'432);
}

TEST_CASE("pads stand behind the vocabulary only") {
  const ModelConfig config = sized(8, 8, 80, 101);  // hidden 32
  const std::int64_t row = 2 * 32 * 2;              // of the embedding and of lm_head
  for (const int tp_size : {2, 4, 8}) {
    std::int64_t pads = 0;
    for (int rank = 0; rank < tp_size; ++rank)
      pads += weight_bytes(config, stored_as("bf16"), {tp_size, 1, rank, 0}).padded;
    CHECK(pads == ((101 + tp_size - 1) / tp_size * tp_size - 101) * row);
  }
  CHECK(weight_bytes(config, stored_as("bf16"), {}).padded == 0);
}

TEST_CASE("the cards of a stage hold each weight once and copies besides") {
  const ModelConfig config = sized(12, 4, 50, 37, {{"attention_bias", true}, {"mlp_bias", true}});
  const std::int64_t of_a_kv_head = std::int64_t{4} * 2 * (4 * 48 + 4);    // k and v, with biases
  const std::int64_t whole = (2 * 4 + 1) * 48 + std::int64_t{4} * 2 * 48;  // norms, biases of sums
  for (int tp_size = 2; tp_size <= 12; ++tp_size) {
    std::int64_t sharded = 0, copied_once = whole;
    std::map<std::int64_t, int> holders;
    for (int rank = 0; rank < tp_size; ++rank) {
      const WeightBytes bytes = weight_bytes(config, stored_as("f32"), {tp_size, 1, rank, 0});
      sharded += bytes.sharded / 4;
      const Range kv = head_shard(12, 4, rank, tp_size).kv;
      for (std::int64_t head = kv.begin; head < kv.end; ++head) ++holders[head];
    }
    for (const auto& [head, count] : holders)
      if (count > 1) copied_once += of_a_kv_head;
    CAPTURE(tp_size);
    CHECK(sharded + copied_once == parameter_count(config));
  }
}

TEST_CASE("quantized projections have a scale for each group and int4 a zero point") {
  const WeightStorage int4 = stored_as("int4"), int8 = stored_as("int8", 64);
  CHECK(int4.projection_bytes(256, 1024) == 256 * 1024 / 2 + 256 * 8 * 2 + 256 * 8 / 2);
  CHECK(int8.projection_bytes(256, 1024) == 256 * 1024 + 256 * 16 * 2);
  CHECK(stored_as("fp8", 64).projection_bytes(256, 1024) == int8.projection_bytes(256, 1024));
  CHECK(stored_as("f32").projection_bytes(3, 5) == 60);
  CHECK(int4.other_bytes(100) == 200);
  CHECK(stored_as("f32").other_bytes(100) == 400);
  CHECK_THROWS_AS(number_format("int2"), Error);
}

TEST_CASE("4 bits make a 70B model a quarter and not half as article 001 says") {
  const ModelConfig config = shape("llama-3-70b");
  const auto bytes = [&](const char* name) {
    return static_cast<double>(weight_bytes(config, stored_as(name), {}).total());
  };
  CHECK(bytes("int4") / bytes("bf16") > 0.25);
  CHECK(bytes("int4") / bytes("bf16") < 0.29);
  CHECK(bytes("fp8") / bytes("bf16") > 0.5);
  CHECK(bytes("fp8") / bytes("bf16") < 0.53);
}

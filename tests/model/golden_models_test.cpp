// Small models of every family, against golden files made by Hugging Face transformers
// (tests/golden/README.md): the whole decoder and the engine, on any number of ranks.
#include <filesystem>

#include "common/model/one_device_decoder.h"
#include "tests/device/test_tensors.h"
#include "tests/model/golden.h"

using namespace tp;

namespace {

using Ids = std::vector<std::int32_t>;

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> all;
  const auto models = std::filesystem::path(TP_SOURCE_DIR) / "tests" / "golden" / "models";
  for (const auto& entry : std::filesystem::directory_iterator(models)) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

struct GoldenModel {
  explicit GoldenModel(const std::filesystem::path& folder)
      : name(folder.filename().string()), golden(folder), model(folder) {}

  // Those of 1, 2, 3, 4, 7 and 8 ranks for which there are query heads.
  std::vector<int> tp_sizes() const {
    std::vector<int> sizes{1, 2, 3, 4, 7, 8};
    std::erase_if(sizes, [&](int tp) { return tp > model.config.num_attention_heads; });
    return sizes;
  }

  std::string name;
  Golden golden;
  Loaded model;
};

// What one device computes for all tokens of a sequence at once.
std::map<std::string, Tensor> one_device(const Loaded& model, const Ids& ids) {
  std::map<std::string, Tensor> modules;
  OneDeviceDecoder decoder(model.config, model.weights, std::ssize(ids));
  decoder.forward(ids, 0, std::ssize(ids), [&](const std::string& name, ConstTensorView output) {
    Tensor& copy = modules[name] = Tensor::on_host(output.shape);
    copy_host(output, copy);
  });
  return modules;
}

ConstTensorView last_rows(ConstTensorView x, std::int64_t rows) {
  return x.rows_in({x.rows() - rows, x.rows()});
}

}  // namespace

TEST_CASE("golden models - every family and every kind of RoPE is there") {
  CHECK(folders().size() >= 9);
  for (const char* name : {"llama2_mqa", "llama3_rope_scaled", "llama_all_biases",
                           "llama_rope_linear", "llama_rope_yarn", "mistral_sliding_window",
                           "qwen2_14_heads", "qwen3_own_head_dim", "smollm2_9_heads"})
    CHECK(std::filesystem::exists(folders()[0].parent_path() / name / "golden.json"));
}

TEST_CASE("golden models - logits and hidden states on any number of ranks") {
  for (const auto& folder : folders()) {
    const GoldenModel m(folder);
    const std::int64_t layers = m.model.config.num_hidden_layers;
    for (const int tp_size : m.tp_sizes()) {
      INFO(m.name << ", tp " << tp_size);
      for (std::size_t p = 0; p < m.golden.prompts(); ++p) {
        const std::string prompt = "prompt" + std::to_string(p);
        const Ids ids = m.golden.ids(p, "ids");
        const auto ranks = run_with_tap(m.model, tp_size, ids, std::ssize(ids));
        m.golden.check(prompt + " logits", ranks[0].tensor("logits"), prompt + ".logits");
        if (!m.golden.tensors.contains(prompt + ".hidden0")) continue;
        for (const RankOutput& rank : ranks) {
          m.golden.check("embedding", rank.tensor("embedding"), prompt + ".hidden0");
          for (std::int64_t i = 1; i < layers; ++i)
            m.golden.check("hidden " + std::to_string(i),
                           rank.tensor("layer " + std::to_string(i - 1) + " output"),
                           prompt + ".hidden" + std::to_string(i));
          m.golden.check("final norm", rank.tensor("final norm"),
                         prompt + ".hidden" + std::to_string(layers));
        }
      }
    }
  }
}

TEST_CASE("golden models - ranks have the bits of one device where tp divides 8") {
  for (const auto& folder : folders()) {
    const GoldenModel m(folder);
    const Ids ids = m.golden.ids(m.golden.prompts() - 1, "ids");
    const auto wanted = one_device(m.model, ids);
    for (const int tp_size : m.tp_sizes()) {
      if (8 % tp_size != 0) continue;
      INFO(m.name << ", tp " << tp_size);
      const auto ranks = run_with_tap(m.model, tp_size, ids, std::ssize(ids));
      CHECK(same_bits(ranks[0].tensor("logits"), wanted.at("logits").view()));
      for (const RankOutput& rank : ranks)
        for (std::int64_t i = 0; i < m.model.config.num_hidden_layers; ++i) {
          const std::string output = "layer " + std::to_string(i) + " output";
          CHECK(same_bits(rank.tensor(output), wanted.at(output).view()));
        }
    }
  }
}

TEST_CASE("golden models - chunks and scattered blocks change no bit") {
  for (const auto& folder : folders()) {
    const GoldenModel m(folder);
    const Ids ids = m.golden.ids(m.golden.prompts() - 1, "ids");
    const auto wanted = one_device(m.model, ids);
    for (const std::int64_t chunk : {1, 7}) {
      for (const std::int64_t block_size : {1, 4, 16}) {
        INFO(m.name << ", chunks of " << chunk << ", blocks of " << block_size);
        const auto ranks = run_with_tap(m.model, 2, ids, chunk, block_size);
        const ConstTensorView logits = ranks[0].tensor("logits");
        CHECK(same_bits(logits, last_rows(wanted.at("logits"), logits.rows())));
      }
    }
  }
}

TEST_CASE("golden models - greedy continuations through the engine") {
  for (const auto& folder : folders()) {
    const GoldenModel m(folder);
    std::vector<Request> requests;
    for (std::size_t p = 0; p < m.golden.prompts(); ++p)
      requests.push_back({m.golden.ids(p, "ids"),
                          std::ssize(m.golden.ids(p, "greedy")),
                          m.model.config.eos_token_ids,
                          true,
                          {}});
    // All prompts in one batch, whole; then in chunks, with too few blocks for all of them.
    const EngineSetup whole{.max_num_batched_tokens = 128, .chunked_prefill_size = 0};
    const EngineSetup chunked{.max_num_seqs = 3,
                              .max_num_batched_tokens = 11,
                              .chunked_prefill_size = 5,
                              .block_size = 3,
                              .num_blocks = 30};
    for (const int tp_size : m.tp_sizes()) {
      for (const EngineSetup& setup : {whole, chunked}) {
        INFO(m.name << ", tp " << tp_size << ", blocks of " << setup.block_size);
        const EngineRun run = run_engine(m.model, tp_size, setup, requests);
        for (std::size_t p = 0; p < requests.size(); ++p)
          CHECK(run.done[p].ids == m.golden.ids(p, "greedy"));
      }
    }
  }
}

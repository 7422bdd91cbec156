// Model folders that a test makes: a safetensors file of any tensors, and whole small Llamas.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/core/dtype.h"
#include "common/core/random.h"
#include "tests/temp_folder.h"

namespace tp {

// The bytes of numbers as they lie in memory.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Gathers tensors and makes a safetensors file of them, one behind the other.
class SafetensorsFile {
 public:
  // `dtype` as the format calls it.
  void add(const std::string& name,
           const std::string& dtype,
           const std::vector<std::int64_t>& shape,
           const std::string& data) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                           header_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","),
                           data_.size(), data_.size() + data.size());
    data_ += data;
  }

  // The header is padded so that the data begins at a multiple of 8, plus `shift`.
  std::string bytes(std::size_t shift = 0) const {
    std::string header = "{" + header_ + "}";
    header.resize((header.size() + 7) / 8 * 8 + shift, ' ');
    return bytes_of<std::uint64_t>({header.size()}) + header + data_;
  }

 private:
  std::string header_, data_;
};

// A Llama of these sizes.
struct CheckpointSizes {
  std::int64_t hidden = 8, intermediate = 24, layers = 2, heads = 4, kv_heads = 2, head_dim = 2;
  std::int64_t vocab = 29;
  bool tied = false;
  bool biases = false;
  bool fused = false;  // qkv_proj and gate_up_proj instead of their parts
  DType dtype = DType::f32;
};

// The files of such a model, with small whole numbers as weights, the same ones fused or not.
class Checkpoint {
 public:
  explicit Checkpoint(const CheckpointSizes& sizes) : sizes_(sizes) { add_tensors(); }

  // The data of the weight file begins at a multiple of 8, plus `shift`.
  void write(const std::filesystem::path& folder, std::size_t shift) const {
    write(folder / "config.json", config());
    write(folder / "model.safetensors", file_.bytes(shift));
  }

 private:
  static void write(const std::filesystem::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  std::string config() const {
    const CheckpointSizes& s = sizes_;
    return fmt::format(
        R"({{"model_type": "llama", "hidden_size": {}, "intermediate_size": {},
 "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
 "vocab_size": {}, "tie_word_embeddings": {}, "attention_bias": {}, "mlp_bias": {}}})",
        s.hidden, s.intermediate, s.layers, s.heads, s.kv_heads, s.head_dim, s.vocab, s.tied,
        s.biases, s.biases);
  }

  void add_tensors() {
    const CheckpointSizes& s = sizes_;
    const std::int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    add("model.embed_tokens.weight", {s.vocab, s.hidden});
    for (std::int64_t i = 0; i < s.layers; ++i) {
      const std::string layer = fmt::format("model.layers.{}.", i);
      add(layer + "input_layernorm.weight", {s.hidden});
      add_linears(layer + "self_attn.", "qkv_proj", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}},
                  s.hidden);
      add_linears(layer + "self_attn.", "", {{"o_proj", s.hidden}}, q);
      add(layer + "post_attention_layernorm.weight", {s.hidden});
      add_linears(layer + "mlp.", "gate_up_proj",
                  {{"gate_proj", s.intermediate}, {"up_proj", s.intermediate}}, s.hidden);
      add_linears(layer + "mlp.", "", {{"down_proj", s.hidden}}, s.intermediate);
    }
    add("model.norm.weight", {s.hidden});
    if (!s.tied) add("lm_head.weight", {s.vocab, s.hidden});
  }

  struct Part {
    const char* name;
    std::int64_t rows;
  };
  // Layers that share their input: each for itself, or one below the other under the name `fused`.
  void add_linears(const std::string& prefix,
                   const std::string& fused,
                   const std::vector<Part>& parts,
                   std::int64_t columns) {
    std::string weights, biases;
    std::int64_t rows = 0;
    for (const Part& part : parts) {
      const std::string weight = values(part.rows * columns), bias = values(part.rows);
      if (!sizes_.fused || fused.empty()) {
        append(prefix + part.name + ".weight", {part.rows, columns}, weight);
        if (sizes_.biases) append(prefix + part.name + ".bias", {part.rows}, bias);
        continue;
      }
      weights += weight;
      biases += bias;
      rows += part.rows;
    }
    if (rows == 0) return;
    append(prefix + fused + ".weight", {rows, columns}, weights);
    if (sizes_.biases) append(prefix + fused + ".bias", {rows}, biases);
  }

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    append(name, shape, values(shape.size() == 1 ? shape[0] : shape[0] * shape[1]));
  }

  void append(const std::string& name,
              const std::vector<std::int64_t>& shape,
              const std::string& data) {
    file_.add(name, sizes_.dtype == DType::bf16 ? "BF16" : "F32", shape, data);
  }

  // Whole numbers from -3 to 4, exact in every dtype.
  std::string values(std::int64_t count) {
    const auto elements = static_cast<std::size_t>(count);
    const std::size_t size = size_of(sizes_.dtype);
    std::string data(elements * size, '\0');
    for (std::size_t i = 0; i < elements; ++i) {
      const auto value = static_cast<float>(static_cast<int>(random_bits(1, drawn_++) % 8) - 3);
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) >> (size == 2 ? 16 : 0);
      std::memcpy(data.data() + i * size, &bits, size);
    }
    return data;
  }

  CheckpointSizes sizes_;
  SafetensorsFile file_;
  std::uint64_t drawn_ = 0;
};

inline void write_checkpoint(const std::filesystem::path& folder,
                             const CheckpointSizes& sizes,
                             std::size_t shift = 0) {
  Checkpoint(sizes).write(folder, shift);
}

}  // namespace tp

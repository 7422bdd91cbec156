#include "tests/bench/gpu/random_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/core/dtype.h"
#include "common/core/error.h"
#include "common/core/random.h"
#include "common/model/config.h"
#include "common/model/weights.h"

namespace tp::bench {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

Error cannot_write(const std::filesystem::path& file) {
  return input_error(fmt::format("{}: cannot be written: {}; TMPDIR says where to", file.string(),
                                 std::strerror(errno)));
}

// Small enough that a product of many of them stays an ordinary number.
std::vector<bf16> random_piece() {
  std::vector<bf16> piece(kPieceBytes / sizeof(bf16));
  for (std::size_t i = 0; i < piece.size(); ++i)
    piece[i] = to_bf16(0.05f * (2 * uniform(7, i) - 1));
  return piece;
}

// Length and JSON; the data comes behind it.
std::string header_of(const ModelConfig& config, std::uint64_t& data_bytes) {
  nlohmann::ordered_json tensors;
  data_bytes = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::vector<std::int64_t> shape;
    for (int dim = 0; dim < tensor.shape.dims(); ++dim) shape.push_back(tensor.shape[dim]);
    const std::uint64_t begin = data_bytes;
    data_bytes += static_cast<std::uint64_t>(tensor.shape.elements()) * sizeof(bf16);
    tensors[tensor.name] = {
        {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, data_bytes}}};
  }
  std::string text = tensors.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

}  // namespace

void write_random_checkpoint(const LlamaSizes& sizes, const std::filesystem::path& folder) {
  const nlohmann::ordered_json config{{"model_type", "llama"},
                                      {"hidden_act", "silu"},
                                      {"hidden_size", sizes.hidden},
                                      {"intermediate_size", sizes.intermediate},
                                      {"num_hidden_layers", sizes.layers},
                                      {"num_attention_heads", sizes.heads},
                                      {"num_key_value_heads", sizes.kv_heads},
                                      {"head_dim", sizes.head_dim},
                                      {"vocab_size", sizes.vocab},
                                      {"max_position_embeddings", sizes.max_tokens},
                                      {"rms_norm_eps", 1e-5},
                                      {"rope_theta", 500000.0},
                                      {"tie_word_embeddings", false},
                                      {"torch_dtype", "bfloat16"}};
  std::ofstream(folder / "config.json") << config.dump(2) << '\n';

  std::uint64_t data_bytes = 0;
  const std::string header = header_of(ModelConfig::load(folder), data_bytes);
  const std::filesystem::path path = folder / "model.safetensors";
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  if (file < 0) throw cannot_write(path);
  std::atomic<int> error = 0;
  const auto write = [&](const void* bytes, std::size_t size, std::uint64_t offset) {
    const auto* next = static_cast<const char*>(bytes);
    while (size > 0 && error == 0) {
      const ssize_t written = ::pwrite(file, next, size, static_cast<off_t>(offset));
      if (written < 0) {
        error = errno;
        return;
      }
      next += written;
      offset += static_cast<std::uint64_t>(written);
      size -= static_cast<std::size_t>(written);
    }
  };
  write(header.data(), header.size(), 0);

  const std::vector<bf16> piece = random_piece();
  std::atomic<std::uint64_t> next_piece = 0;
  std::vector<std::jthread> threads;
  const auto num_threads = std::clamp<std::uint64_t>(
      data_bytes / kPieceBytes, 1, std::max(1u, std::thread::hardware_concurrency()));
  for (std::uint64_t i = 0; i < num_threads; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t begin; (begin = kPieceBytes * next_piece++) < data_bytes;)
        write(piece.data(), std::min<std::uint64_t>(kPieceBytes, data_bytes - begin),
              header.size() + begin);
    });
  threads.clear();
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) {
    errno = error;
    throw cannot_write(path);
  }
}

}  // namespace tp::bench

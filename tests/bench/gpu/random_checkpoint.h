// A model folder with random weights of any size, written as fast as the memory allows.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tp::bench {

struct LlamaSizes {
  std::int64_t hidden = 4096, layers = 32, heads = 32, kv_heads = 8, head_dim = 128;
  std::int64_t intermediate = 14336, vocab = 128256;
  std::int64_t max_tokens = 8192;  // of a sequence
};

// Writes config.json and model.safetensors, in bf16, into the folder. The numbers repeat.
// Errors: tp::Error (input) naming the file if it cannot be written.
void write_random_checkpoint(const LlamaSizes& sizes, const std::filesystem::path& folder);

}  // namespace tp::bench

// The readers of files that somebody else wrote, each as a function of bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tp {

struct FuzzTarget {
  std::string_view name;  // of its folder below tests/fuzz/corpus, too
  // Reads the bytes as such a file. Either all is well, or tp::Error (input) is thrown and caught
  // here; anything else ends the program.
  void (*read)(std::span<const std::uint8_t> bytes);
};

void read_as_header(std::span<const std::uint8_t> bytes);             // a safetensors file
void read_as_index(std::span<const std::uint8_t> bytes);              // the index of two shards
void read_as_config(std::span<const std::uint8_t> bytes);             // config.json
void read_as_generation_config(std::span<const std::uint8_t> bytes);  // generation_config.json
void read_as_tokenizer(std::span<const std::uint8_t> bytes);          // tokenizer.json
void read_as_topology(std::span<const std::uint8_t> bytes);           // what nvidia-smi printed
void read_as_device_list(std::span<const std::uint8_t> bytes);        // CUDA_VISIBLE_DEVICES

inline constexpr std::array kFuzzTargets{
    FuzzTarget{"header", read_as_header},
    FuzzTarget{"index", read_as_index},
    FuzzTarget{"config", read_as_config},
    FuzzTarget{"generation_config", read_as_generation_config},
    FuzzTarget{"tokenizer", read_as_tokenizer},
    FuzzTarget{"topology", read_as_topology},
    FuzzTarget{"device_list", read_as_device_list},
};

}  // namespace tp

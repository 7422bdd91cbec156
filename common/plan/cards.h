// Memory of common GPUs. [introduced in chapter 08]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tp {

// A GPU and the memory that its maker names, in GiB. What a driver reports is a little less: 81,559
// MiB of 81,920 on an H100, 46,068 of 49,152 on an L40S, whose error correction takes some. Where
// that counts, plan with the number that nvidia-smi shows.
struct Card {
  std::string_view name;  // "a100-80g"
  std::int64_t memory_gib = 0;
  std::string_view source;  // what says so
  // Error correction, where it is on, keeps its bits in this memory: less of it can be used.
  bool ecc_takes_memory = false;

  std::int64_t memory_bytes() const { return memory_gib << 30; }
};

std::span<const Card> known_cards();

// Errors: tp::Error (input) with the names that are known.
const Card& card_named(std::string_view name);

}  // namespace tp

#include "common/plan/cards.h"

#include <array>
#include <vector>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

constexpr std::array kCards{
    Card{"a10-24g", 24, "NVIDIA A10 data sheet: 24 GB GDDR6", true},
    Card{"a100-40g", 40, "NVIDIA A100 data sheet: 40 GB HBM2"},
    Card{"a100-80g", 80, "NVIDIA A100 data sheet: 80 GB HBM2e"},
    Card{"b200-180g", 180, "NVIDIA DGX B200 data sheet: 1,440 GB on 8 GPUs"},
    Card{"h100-80g", 80, "NVIDIA H100 data sheet: 80 GB HBM3 (SXM) or HBM2e (PCIe)"},
    Card{"h200-141g", 141, "NVIDIA H200 data sheet: 141 GB HBM3e"},
    Card{"l4-24g", 24, "NVIDIA L4 data sheet: 24 GB GDDR6", true},
    Card{"l40s-48g", 48, "NVIDIA L40S data sheet: 48 GB GDDR6", true},
    Card{"rtx-3090", 24, "NVIDIA GeForce RTX 3090 specifications: 24 GB GDDR6X"},
    Card{"rtx-4090", 24, "NVIDIA GeForce RTX 4090 specifications: 24 GB GDDR6X"},
    Card{"rtx-5090", 32, "NVIDIA GeForce RTX 5090 specifications: 32 GB GDDR7"},
    Card{"rtx-a6000", 48, "NVIDIA RTX A6000 data sheet: 48 GB GDDR6 with ECC; article 002", true},
    Card{"t4-16g", 16, "NVIDIA T4 data sheet: 16 GB GDDR6", true},
    Card{"v100-16g", 16, "NVIDIA V100 data sheet: 16 GB HBM2"},
    Card{"v100-32g", 32, "NVIDIA V100 data sheet: 32 GB HBM2"},
};

}  // namespace

std::span<const Card> known_cards() {
  return kCards;
}

const Card& card_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Card& card : kCards) {
    if (card.name == name) return card;
    names.push_back(card.name);
  }
  throw input_error(
      fmt::format("--card {}: must be one of {}; or give its memory with --card-memory-gib", name,
                  fmt::join(names, ", ")));
}

}  // namespace tp

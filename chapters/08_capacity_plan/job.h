// What is to be planned, checked before any work starts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/plan/layout.h"
#include "plan_options.h"

namespace tp {

struct LayoutSize {
  int tp_size = 1;
  int pp_size = 1;
};

struct PlanJob {
  std::string model;              // its name
  std::filesystem::path folder;   // of its weights; for --verify
  std::string card;               // "a100-80g" or "of the given memory"
  bool ecc_takes_memory = false;  // of the card, see Card
  PlanInput input;
  std::vector<LayoutSize> sizes;   // to be planned, in order of pp, then tp
  bool lesson = false;             // the articles and each sum by hand are shown too
  std::optional<int> cards_there;  // on the machine, if that is known
  bool all_usable = false;         // sizes are the usable ones; else those that the machine has

  // Errors: tp::Error (input) with all problems at once. A tp that was asked for by --tp and cannot
  //         be is one.
  static PlanJob prepare(const Options& options, const PlanOptions& plan);
};

// The largest number of cards and of stages that can be planned.
inline constexpr int kMostCards = 256;

}  // namespace tp

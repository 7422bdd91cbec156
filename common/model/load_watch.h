// One rank's look at its weights while they are loaded. [introduced in chapter 06]
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/model/weights.h"
#include "common/parallel/rank_context.h"

namespace tp {

// Says how far a long loading is, in one line that is written again and again.
class LoadProgress {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(const std::string& text)>;  // to a terminal
  static constexpr std::chrono::milliseconds kPatience{1000};  // shorter loadings say nothing
  static constexpr std::chrono::milliseconds kPause{100};      // between two writes

  LoadProgress(std::int64_t all_bytes, Write write, Clock::time_point start);
  // The one on standard error, silent if that is no terminal.
  static LoadProgress on_terminal(std::int64_t all_bytes);

  void add(std::int64_t bytes, Clock::time_point now);
  // Removes the line.
  void finish();

 private:
  std::int64_t all_bytes_;
  std::int64_t bytes_ = 0;
  Write write_;
  Clock::time_point next_;
  bool shown_ = false;
};

// Watches the uploads of a rank's device until it is destroyed: counts the values that are not
// finite by tensor, and refuses by name those that would become infinite.
class LoadWatch {
 public:
  // Both must live longer than this object. `progress` may be null.
  LoadWatch(Device& device, const Weights& weights, LoadProgress* progress);
  ~LoadWatch() { device_.observe_uploads({}); }
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

  // One line for each tensor with NaN or infinite values in the shards of any rank.
  // Ranks: every rank, after loading; all get the same lines.
  std::vector<std::string> notes(const RankContext& ctx) const;

 private:
  void uploaded(ConstTensorView host, const CopyFindings& findings);

  Device& device_;
  const Weights& weights_;
  LoadProgress* progress_;
  std::vector<std::int64_t> not_finite_;  // values, by the index of tensor_names()
};

}  // namespace tp

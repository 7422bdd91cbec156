// What rank 0 tells the other ranks to do next. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tp {

// One step of the model: run these tokens at these positions. Nothing else crosses between the
// ranks but the tensors of the model. No tokens mean: stop.
struct Step {
  std::int64_t first_position = 0;
  std::int64_t logit_rows = 0;  // of how many of the last tokens rank 0 wants the logits
  std::vector<std::int32_t> ids;

  bool stop() const { return ids.empty(); }

  // As bytes: first_position and logit_rows (8 bytes each), then the ids (4 bytes each).
  void encode(std::vector<std::byte>& bytes) const;
  // Errors: tp::Error (rank) if the bytes are no step.
  static Step decode(const std::vector<std::byte>& bytes);
};

}  // namespace tp

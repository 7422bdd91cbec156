// How many bytes of weights one card holds. [introduced in chapter 08]
//
// Worked out from the config and the arithmetic of shards (model/tensor_split.h), without weights.
#pragma once

#include <cstdint>

#include "common/core/range.h"
#include "common/model/config.h"
#include "common/plan/storage.h"

namespace tp {

// Whose weights are meant: those of rank `rank` of tp_size in stage `stage` of pp_size.
struct CardPlace {
  int tp_size = 1;
  int pp_size = 1;
  int rank = 0;
  int stage = 0;

  // Stages have whole layers, in order; their numbers differ by at most one.
  Range layers(std::int64_t num_hidden_layers) const;
};

struct WeightBytes {
  std::int64_t sharded = 0;  // no other rank of the stage has them
  std::int64_t replicated =
      0;                    // another one has them too: norms, biases behind sums, copied KV heads
  std::int64_t padded = 0;  // zeros behind the vocabulary

  std::int64_t total() const { return sharded + replicated + padded; }
  WeightBytes& operator+=(const WeightBytes& other);
};

// The embedding is on the first stage, the final norm and lm_head are on the last. A head that is
// tied to the embedding costs nothing on one stage; the last of several has a copy.
WeightBytes weight_bytes(const ModelConfig& config,
                         const WeightStorage& storage,
                         const CardPlace& place);

// Numbers in all weights of the model, a tied matrix counted once.
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace tp

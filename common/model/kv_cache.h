// Keys and values of the tokens seen so far, for one sequence. [introduced in chapter 06]
#pragma once

#include <cstdint>

#include "common/device/device.h"

namespace tp {

// Memory for max_tokens tokens, allocated once: layers * 2 * kv_heads_local * max_tokens * head_dim
// * 4 bytes.
class KvCache {
 public:
  KvCache(Device& device,
          std::int64_t layers,
          std::int64_t kv_heads_local,
          std::int64_t max_tokens,
          std::int64_t head_dim);

  std::int64_t max_tokens() const { return memory_.shape()[2]; }
  KvView layer(std::int64_t layer);

 private:
  std::int64_t kv_heads_local_;
  Tensor memory_;  // [layers * 2, kv_heads_local, max_tokens, head_dim]: keys and values in turn
};

}  // namespace tp

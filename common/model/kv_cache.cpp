#include "common/model/kv_cache.h"

namespace tp {

KvCache::KvCache(Device& device, const KvLayout& layout)
    : layout_(layout),
      memory_(device.allocate({layout.layers * 2 * layout.num_blocks, layout.kv_heads_local,
                               layout.block_size, layout.head_dim},
                              layout.dtype,
                              "kv")) {}

KvLayer KvCache::layer(std::int64_t layer) {
  const std::int64_t n = layout_.num_blocks, keys = 2 * layer * n;
  return {memory_.view().rows_in({keys, keys + n}),
          memory_.view().rows_in({keys + n, keys + 2 * n})};
}

}  // namespace tp

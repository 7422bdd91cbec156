#include "common/model/kv_cache.h"

namespace tp {

KvCache::KvCache(Device& device,
                 std::int64_t layers,
                 std::int64_t kv_heads_local,
                 std::int64_t max_tokens,
                 std::int64_t head_dim)
    : kv_heads_local_(kv_heads_local),
      memory_(
          device.allocate({layers * 2, kv_heads_local, max_tokens, head_dim}, DType::f32, "kv")) {}

KvView KvCache::layer(std::int64_t layer) {
  const auto part = [&](std::int64_t index) {
    TensorView view = memory_.view().rows_in({index, index + 1});
    view.shape = {kv_heads_local_, memory_.shape()[2], memory_.shape()[3]};
    view.row_stride = view.shape.row_elements();
    return view;
  };
  return {part(2 * layer), part(2 * layer + 1)};
}

}  // namespace tp

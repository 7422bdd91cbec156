#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/rope_kv.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kPack = 4;

struct Sizes {
  std::int64_t rows;
  std::int64_t query_heads;
  std::int64_t kv_heads;
  std::int64_t value_heads;  // kv_heads if they are stored, else 0
  std::int64_t block_stride;
  int head_dim;
  int half;  // head_dim / 2, rounded up
  int block_size;
};

// A head is rotated in pairs (i, i + half). A thread serves one pack of pairs, of one head of q, k
// or v, in every gridDim.y-th row: it reads a pack from either half, rotates them (not v), writes
// them back (not v), and writes them to the cache (not q). Neighbouring threads serve neighbouring
// packs of a head, then the next head. Per row the tables' cosines and sines are read once from
// memory; the other heads find them in the L1 cache.
template <class T, int kPack>
__global__ void __launch_bounds__(kMaxThreads) rope_store_kv_kernel(float* q,
                                                                    std::int64_t q_stride,
                                                                    float* k,
                                                                    std::int64_t k_stride,
                                                                    const float* v,
                                                                    std::int64_t v_stride,
                                                                    const std::int32_t* positions,
                                                                    const float* cos,
                                                                    const float* sin,
                                                                    const std::int32_t* slots,
                                                                    T* cached_keys,
                                                                    T* cached_values,
                                                                    Sizes sizes) {
  const int packs_per_head = sizes.half / kPack;
  const auto pack = static_cast<int>(pack_of_thread());
  const int low = pack % packs_per_head * kPack;
  const int high = low + sizes.half;
  std::int64_t head = pack / packs_per_head;
  const bool has_high = high < sizes.head_dim;  // false in the middle of an odd head_dim
  const bool is_query = head < sizes.query_heads;
  if (!is_query) head -= sizes.query_heads;
  const bool is_value = !is_query && head >= sizes.kv_heads;
  if (is_value) head -= sizes.kv_heads;
  if (is_value && head >= sizes.value_heads) return;

  for (std::int64_t row = blockIdx.y; row < sizes.rows; row += gridDim.y) {
    const std::int64_t first = head * sizes.head_dim;
    const float* from = is_query   ? q + row * q_stride + first
                        : is_value ? v + row * v_stride + first
                                   : k + row * k_stride + first;
    auto a = load_pack<kPack>(from + low);
    Pack<float, kPack> b = {};
    if (has_high) b = load_pack<kPack>(from + high);

    if (positions != nullptr && !is_value) {
      const std::int64_t angles = static_cast<std::int64_t>(positions[row]) * sizes.half + low;
      const auto c = load_pack<kPack>(cos + angles), s = load_pack<kPack>(sin + angles);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float x = a.values[i], y = b.values[i];
        a.values[i] = x * c.values[i] - y * s.values[i];
        b.values[i] = y * c.values[i] + x * s.values[i];
      }
      float* const to = is_query ? q + row * q_stride + first : k + row * k_stride + first;
      store_pack(to + low, a);
      store_pack(to + high, b);
    }

    if (slots == nullptr || is_query || slots[row] < 0) continue;
    const std::int64_t block = slots[row] / sizes.block_size;
    const int place = slots[row] % sizes.block_size;
    T* const to = (is_value ? cached_values : cached_keys) + block * sizes.block_stride +
                  (head * sizes.block_size + place) * sizes.head_dim;
    store_pack(to + low, narrow<T>(a));
    if (has_high) store_pack(to + high, narrow<T>(b));
  }
}

}  // namespace

void rope_store_kv(const RopeKv& args, cudaStream_t stream) {
  const bool rotates = args.positions != nullptr, stores = args.slots != nullptr;
  require(!rotates || args.head_dim % 2 == 0, "rope_store_kv: an odd head_dim cannot be rotated");
  Sizes sizes = {.rows = args.rows,
                 .query_heads = rotates ? args.query_heads : 0,
                 .kv_heads = rotates || stores ? args.kv_heads : 0,
                 .value_heads = stores ? args.kv_heads : 0,
                 .block_stride = args.cache.block_stride,
                 .head_dim = static_cast<int>(args.head_dim),
                 .half = static_cast<int>(divide_up(args.head_dim, 2)),
                 .block_size = static_cast<int>(args.cache.block_size)};
  const std::int64_t heads = sizes.query_heads + sizes.kv_heads + sizes.value_heads;
  if (args.rows == 0 || heads == 0 || args.head_dim == 0) return;

  const PagedKv& cache = args.cache;
  const std::size_t cached = size_of(cache.dtype);
  const bool packs = args.head_dim % (2 * kPack) == 0 && packable(kPack, args.q) &&
                     packable(kPack, args.k) && packable(kPack, args.v) &&
                     packable(kPack, args.cos, 0, sizeof(float)) &&
                     packable(kPack, args.sin, 0, sizeof(float)) &&
                     packable(kPack, cache.keys, cache.block_stride, cached) &&
                     packable(kPack, cache.values, cache.block_stride, cached);
  with_elements(cache.keys, cache.dtype, [&]<class T>(T* keys) {
    with_pack<kPack>(packs, [&](auto pack) {
      const RowGrid shape(args.rows, heads * (sizes.half / pack));
      TP_LAUNCH((rope_store_kv_kernel<T, pack()>), shape.grid, shape.block, 0, stream, args.q.data,
                args.q.stride, args.k.data, args.k.stride, args.v.data, args.v.stride,
                args.positions, args.cos, args.sin, args.slots, keys, static_cast<T*>(cache.values),
                sizes);
    });
  });
}

}  // namespace tp::cuda

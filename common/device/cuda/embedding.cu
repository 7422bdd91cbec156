#include "common/device/cuda/embedding.h"
#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kPack = 4;

// A thread serves one pack of columns, in every gridDim.y-th row of y. All threads of a block read
// the same id, and then either neighbouring packs of one row of the table or nothing.
template <class T, int kPack>
__global__ void __launch_bounds__(kMaxThreads) embed_kernel(const std::int32_t* ids,
                                                            const T* table,
                                                            std::int64_t table_stride,
                                                            Range held,
                                                            float* y,
                                                            std::int64_t y_stride,
                                                            Extent size) {
  const std::int64_t column = pack_of_thread() * kPack;
  if (column >= size.columns) return;
  for (std::int64_t row = blockIdx.y; row < size.rows; row += gridDim.y) {
    const std::int32_t id = ids[row];
    Pack<float, kPack> wide = {};
    if (held.begin <= id && id < held.end)
      wide = widen(load_pack<kPack>(table + (id - held.begin) * table_stride + column));
    store_pack(y + row * y_stride + column, wide);
  }
}

}  // namespace

void embed(const std::int32_t* ids,
           WeightRows table,
           Range held,
           Rows y,
           Extent size,
           cudaStream_t stream) {
  if (empty(size)) return;
  const bool packs = size.columns % kPack == 0 && packable(kPack, table) && packable(kPack, y);
  with_elements(table.data, table.dtype, [&]<class T>(const T* elements) {
    with_pack<kPack>(packs, [&](auto pack) {
      const RowGrid shape(size.rows, size.columns / pack);
      TP_LAUNCH((embed_kernel<T, pack()>), shape.grid, shape.block, 0, stream, ids, elements,
                table.stride, held, y.data, y.stride, size);
    });
  });
}

}  // namespace tp::cuda

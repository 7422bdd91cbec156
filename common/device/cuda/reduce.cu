#include <utility>

#include "common/device/cuda/launch_shape.h"
#include "common/device/cuda/pack.h"
#include "common/device/cuda/reduce.h"
#include "cuda_language.h"

namespace tp::cuda {

namespace {

constexpr int kThreads = 256;

// Operands kFirst, ..., kFirst + kCount - 1, added as tree_sum.h does: first half + second half.
template <int kFirst, int kCount, class T, int kPack>
__device__ __forceinline__ Pack<float, kPack> tree_sum(const Pack<T, kPack>* operands) {
  if constexpr (kCount == 1) {
    return widen(operands[kFirst]);
  } else {
    auto sum = tree_sum<kFirst, kCount / 2>(operands);
    const auto right = tree_sum<kFirst + kCount / 2, kCount - kCount / 2>(operands);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum.values[i] += right.values[i];
    return sum;
  }
}

// A thread sums one pack: it asks for the 16 bytes of all ranks, possibly over NVLink or PCIe,
// before it uses any of them, adds them in registers and writes 16 bytes. kCount is a template
// argument so that the tree has a fixed form. No __restrict__: out may be one of the sources.
template <class T, int kPack, int kCount>
__global__ void __launch_bounds__(kThreads)
    reduce_ranks_kernel(ReduceSources sources, std::int64_t begin, std::int64_t end, T* out) {
  const std::int64_t at = begin + pack_of_thread() * kPack;
  if (at >= end) return;
  Pack<T, kPack> operands[kCount];
#pragma unroll
  for (int rank = 0; rank < kCount; ++rank)
    operands[rank] = load_pack<kPack>(static_cast<const T*>(sources.rank[rank]) + at);
  store_pack(out + at, narrow<T>(tree_sum<0, kCount>(operands)));
}

// The additions of a tree over more ranks than there are templates for, each into its left operand.
struct Additions {
  std::uint8_t left[kMaxReduceRanks], right[kMaxReduceRanks];
  int count = 0;

  Additions(int first, int ranks) { add_tree(first, ranks); }

 private:
  void add_tree(int first, int ranks) {
    if (ranks == 1) return;
    add_tree(first, ranks / 2);
    add_tree(first + ranks / 2, ranks - ranks / 2);
    left[count] = static_cast<std::uint8_t>(first);
    right[count++] = static_cast<std::uint8_t>(first + ranks / 2);
  }
};

// A thread sums one element, in memory of its own.
template <class T>
__global__ void __launch_bounds__(kThreads) reduce_many_ranks_kernel(
    ReduceSources sources, Additions additions, std::int64_t begin, std::int64_t end, T* out) {
  const std::int64_t at = begin + pack_of_thread();
  if (at >= end) return;
  float sums[kMaxReduceRanks];
  for (int rank = 0; rank < sources.count; ++rank)
    sums[rank] = widen(static_cast<const T*>(sources.rank[rank])[at]);
  for (int i = 0; i < additions.count; ++i) sums[additions.left[i]] += sums[additions.right[i]];
  narrow(sums[0], out[at]);
}

// Calls use(constant) with count, which is 1 to kFewRanks, as a compile-time constant.
constexpr int kFewRanks = 16;
template <int kCount = kFewRanks, class Use>
void with_count(int count, const Use& use) {
  if (count == kCount)
    use(std::integral_constant<int, kCount>{});
  else if constexpr (kCount > 1)
    with_count<kCount - 1>(count, use);
}

template <class T>
void launch_reduce_ranks(const ReduceSources& sources,
                         Range elements,
                         T* out,
                         cudaStream_t stream) {
  const auto blocks_of = [&](int elements_per_thread) {
    return dim3(static_cast<unsigned>(divide_up(elements.size(), kThreads * elements_per_thread)));
  };
  if (sources.count > kFewRanks) {
    TP_LAUNCH((reduce_many_ranks_kernel<T>), blocks_of(1), dim3(kThreads), 0, stream, sources,
              Additions(0, sources.count), elements.begin, elements.end, out);
    return;
  }
  constexpr int kPack = 16 / sizeof(T);
  bool packs = elements.begin % kPack == 0 && elements.end % kPack == 0 &&
               packable(kPack, out, 0, sizeof(T));
  for (int rank = 0; rank < sources.count; ++rank)
    packs = packs && packable(kPack, sources.rank[rank], 0, sizeof(T));
  with_pack<kPack>(packs, [&](auto pack) {
    with_count(sources.count, [&](auto count) {
      TP_LAUNCH((reduce_ranks_kernel<T, pack(), count()>), blocks_of(pack), dim3(kThreads), 0,
                stream, sources, elements.begin, elements.end, out);
    });
  });
}

}  // namespace

void reduce_ranks(
    const ReduceSources& sources, DType dtype, Range elements, void* out, cudaStream_t stream) {
  require(1 <= sources.count && sources.count <= kMaxReduceRanks,
          "reduce_ranks: the number of ranks is not in 1 to 64");
  require(dtype == DType::f32 || dtype == DType::bf16,
          "reduce_ranks: the dtype is not f32 or bf16");
  if (elements.size() <= 0) return;
  if (dtype == DType::f32)
    launch_reduce_ranks(sources, elements, static_cast<float*>(out), stream);
  else
    launch_reduce_ranks(sources, elements, static_cast<__nv_bfloat16*>(out), stream);
}

}  // namespace tp::cuda

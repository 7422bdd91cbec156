// Each kernel alone, on the shapes of a Llama with 8 billion parameters, and the ceilings for them.
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "common/device/cuda/activation.h"
#include "common/device/cuda/decode_attention.h"
#include "common/device/cuda/elementwise.h"
#include "common/device/cuda/embedding.h"
#include "common/device/cuda/prefill_attention.h"
#include "common/device/cuda/products.h"
#include "common/device/cuda/reduce.h"
#include "common/device/cuda/rms_norm.h"
#include "common/device/cuda/rope_kv.h"
#include "common/device/cuda/selection.h"
#include "tests/bench/gpu/bench.h"
#include "tests/bench/gpu/gpu_data.h"
#include "tests/bench/gpu/gpu_timer.h"

namespace tp::bench {

namespace {

using namespace cuda;

struct Sizes {
  std::int64_t copy_bytes = std::int64_t{1} << 30;
  // Several times what the caches hold, so that the memory is measured.
  std::int64_t rows = 8192, hidden = 4096, intermediate = 14336, vocab = 128256;
  std::int64_t heads = 32, kv_heads = 8, head_dim = 128, block_size = 16;
  std::int64_t logit_rows = 128;
  std::int64_t ceiling = 8192;  // of the product that shows what cuBLAS can do

  static Sizes small() { return {1 << 16, 16, 64, 96, 300, 4, 2, 16, 4, 3, 32}; }
};

class KernelBench {
 public:
  explicit KernelBench(bool small)
      : small_(small),
        sizes_(small ? Sizes::small() : Sizes{}),
        device_(make_cuda_device({})),
        timer_(device_->stream(), small) {
    check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0),
          "cudaDeviceGetAttribute");
  }

  void run() {
    copy();
    norms();
    for (const auto& [sequences, context] : decode_shapes()) decode(sequences, context);
    products();
    elementwise();
    rope();
    prefill(small_ ? 24 : 2048);
    selection();
    reduce();
  }

 private:
  struct DecodeShape {
    std::int64_t sequences, context;
  };
  std::vector<DecodeShape> decode_shapes() const {
    if (small_) return {{2, 70}, {1, 9}};
    return {{128, 1024}, {32, 4096}, {1, 65536}};
  }

  Tensor random(std::int64_t rows, std::int64_t columns, DType dtype = DType::f32) {
    return random_on_gpu(*device_, {rows, columns}, dtype);
  }

  // Measures and prints. `work` is how many bytes are moved, or operations done.
  template <class Launch>
  void measure(const std::string& name,
               const std::string& shape,
               const char* unit,
               std::int64_t work,
               const Launch& launch) {
    print_line({{"kind", "kernel"},
                {"name", name},
                {"shape", shape},
                {"us", timer_.median_us(launch)},
                {unit, work}});
  }

  static std::string product_of(std::initializer_list<std::int64_t> sizes) {
    return fmt::format("{}", fmt::join(sizes, " x "));
  }

  void copy() {
    const std::int64_t bytes = sizes_.copy_bytes;
    Tensor from = random(1, bytes / 4), to = random(1, bytes / 4);
    measure("copy", fmt::format("{} MiB", bytes >> 20), "bytes", 2 * bytes, [&] {
      check(cudaMemcpyAsync(to.view().data, from.view().data, static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToDevice, stream()),
            "cudaMemcpyAsync");
    });
  }

  void norms() {
    const Extent size{sizes_.rows, sizes_.hidden};
    const std::int64_t elements = size.rows * size.columns;
    Tensor x = random(size.rows, size.columns), y = random(size.rows, size.columns),
           delta = random(size.rows, size.columns);
    Tensor weight = random(1, size.columns, DType::bf16),
           head_weight = random(1, sizes_.head_dim, DType::bf16);
    const std::string shape = product_of({size.rows, size.columns});
    measure("rms_norm", shape, "bytes", 8 * elements,
            [&] { rms_norm(rows_of(x), weight_of(weight), kEps, rows_of(y), size, stream()); });
    measure("add_rms_norm", shape, "bytes", 16 * elements, [&] {
      add_rms_norm(rows_of(x), rows_of(delta), weight_of(weight), kEps, rows_of(y), size, stream());
    });
    const HeadRows heads{size.rows, sizes_.heads, sizes_.head_dim};
    Tensor q = random(size.rows, sizes_.heads * sizes_.head_dim);
    measure("rms_norm_heads", product_of({heads.rows, heads.heads, heads.head_dim}), "bytes",
            8 * heads.rows * heads.heads * heads.head_dim,
            [&] { rms_norm_heads(rows_of(q), weight_of(head_weight), kEps, heads, stream()); });
  }

  // Sequences whose blocks lie scattered over the cache, as they do after a while.
  struct Cache {
    Tensor keys, values, sequences, tables;
    PagedKv paged;
  };
  Cache cache_of(std::int64_t num_sequences, std::int64_t tokens, std::int32_t new_tokens) {
    const std::int64_t blocks_each = blocks_for(tokens, sizes_.block_size);
    const std::int64_t blocks = num_sequences * blocks_each;
    const Shape shape{blocks, sizes_.kv_heads, sizes_.block_size, sizes_.head_dim};
    std::vector<std::int32_t> table(static_cast<std::size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    for (std::size_t i = table.size() - 1; i > 0; --i)
      std::swap(table[i], table[random_bits(3, i) % (i + 1)]);
    std::vector<DeviceSequence> sequences;
    for (std::int64_t i = 0; i < num_sequences; ++i)
      sequences.push_back({static_cast<std::int32_t>(i), new_tokens,
                           static_cast<std::int32_t>(tokens - new_tokens),
                           static_cast<std::int32_t>(i * blocks_each)});
    Cache cache{random_on_gpu(*device_, shape, DType::bf16),
                random_on_gpu(*device_, shape, DType::bf16),
                integers_on_gpu(*device_, sequences),
                integers_on_gpu(*device_, table),
                {}};
    cache.paged = {cache.keys.view().data, cache.values.view().data, DType::bf16,
                   shape.row_elements(),   sizes_.kv_heads,          sizes_.block_size,
                   sizes_.head_dim};
    return cache;
  }
  static DeviceSequences sequences_of(Cache& cache) {
    return {pointer_to<DeviceSequence>(cache.sequences), pointer_to<std::int32_t>(cache.tables)};
  }
  HeadShard all_heads() const {
    return {{0, sizes_.heads}, {0, sizes_.kv_heads}, sizes_.heads / sizes_.kv_heads};
  }

  void decode(std::int64_t sequences, std::int64_t context) {
    Cache cache = cache_of(sequences, context, 1);
    Tensor q = random(sequences, sizes_.heads * sizes_.head_dim),
           y = random(sequences, sizes_.heads * sizes_.head_dim);
    const std::int64_t splits =
        decode_splits(sequences, sizes_.kv_heads, context, multiprocessors_);
    Tensor workspace = device_->allocate(
        {decode_workspace_bytes(sequences, sizes_.heads, sizes_.head_dim, splits) / 4 + 4},
        DType::f32, "bench");
    const DecodeAttention args{rows_of(q), cache.paged, all_heads(), sequences_of(cache),
                               sequences,  0,           splits,      workspace.view().data,
                               rows_of(y)};
    measure("decode_attention", fmt::format("{} sequences, {} tokens", sequences, context), "bytes",
            2 * 2 * sequences * context * sizes_.kv_heads * sizes_.head_dim,
            [&] { decode_attention(args, stream()); });
  }

  void prefill(std::int64_t tokens) {
    Cache cache = cache_of(1, tokens, static_cast<std::int32_t>(tokens));
    Tensor q = random(tokens, sizes_.heads * sizes_.head_dim),
           y = random(tokens, sizes_.heads * sizes_.head_dim);
    std::vector<PrefillTile> tiles;
    for (std::int64_t row = 0; row < tokens; row += kPrefillTileRows)
      tiles.push_back({0, static_cast<std::int32_t>(row)});
    Tensor tiles_on_gpu = integers_on_gpu(*device_, tiles);
    const PrefillAttention args{rows_of(q),
                                cache.paged,
                                all_heads(),
                                sequences_of(cache),
                                pointer_to<PrefillTile>(tiles_on_gpu),
                                std::ssize(tiles),
                                0,
                                rows_of(y)};
    // Two products over the causal half of the scores.
    measure("prefill_attention", fmt::format("{} tokens", tokens), "flops",
            2 * sizes_.heads * sizes_.head_dim * tokens * (tokens + 1),
            [&] { prefill_attention(args, stream()); });
  }

  void products() {
    Tensor workspace = device_->allocate({std::int64_t{8} << 20}, DType::f32, "bench");
    Products products(stream(), workspace);
    const std::int64_t c = sizes_.ceiling, h = sizes_.hidden, i = sizes_.intermediate,
                       half = sizes_.rows / 2;
    const std::int64_t batch = sizes_.logit_rows;
    for (const auto& [m, n, k] :
         {std::array{c, c, c}, std::array{half, h, h}, std::array{half, 2 * i, h},
          std::array{half, h, i}, std::array{batch, 2 * i, h}, std::array{batch, sizes_.vocab, h},
          std::array{std::int64_t{1}, 2 * i, h}}) {
      Tensor x = random(m, k, DType::bf16), w = random(n, k, DType::bf16), y = random(m, n);
      measure("matmul", product_of({m, n, k}), "flops", 2 * m * n * k,
              [&] { products.multiply(x, w, y); });
    }
  }

  void elementwise() {
    const Extent size{sizes_.rows, sizes_.hidden}, wide{sizes_.rows / 2, sizes_.intermediate};
    const std::int64_t elements = size.rows * size.columns,
                       wide_elements = wide.rows * wide.columns;
    const std::string shape = product_of({size.rows, size.columns}),
                      wide_shape = product_of({wide.rows, wide.columns});
    Tensor x = random(size.rows, size.columns), y = random(size.rows, size.columns);
    Tensor bias = random(1, size.columns, DType::bf16),
           rounded = random(size.rows, size.columns, DType::bf16);
    measure("add", shape, "bytes", 12 * elements,
            [&] { add(rows_of(x), rows_of(y), size, stream()); });
    measure("add_bias", shape, "bytes", 8 * elements,
            [&] { add_bias(rows_of(x), weight_of(bias), size, stream()); });
    measure("round_rows", shape, "bytes", 6 * elements,
            [&] { round_rows(rows_of(x), size, rounded.view().data, DType::bf16, stream()); });
    Tensor gate_up = random(wide.rows, 2 * wide.columns), act = random(wide.rows, wide.columns);
    const TensorView both = gate_up;
    measure("gated_activation", wide_shape, "bytes", 12 * wide_elements, [&] {
      gated_activation(rows_of(both.columns_in({0, wide.columns})),
                       rows_of(both.columns_in({wide.columns, 2 * wide.columns})), rows_of(act),
                       wide, Activation::silu, stream());
    });
    measure("activate", wide_shape, "bytes", 8 * wide_elements,
            [&] { activate(rows_of(act), wide, Activation::silu, stream()); });

    std::vector<std::int32_t> ids, order;
    for (std::int64_t i = 0; i < size.rows; ++i) {
      const std::uint64_t bits = random_bits(4, static_cast<std::uint64_t>(i));
      ids.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(sizes_.vocab)));
      order.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(size.rows)));
    }
    Tensor table = random(sizes_.vocab, size.columns, DType::bf16),
           ids_on_gpu = integers_on_gpu(*device_, ids),
           order_on_gpu = integers_on_gpu(*device_, order);
    measure("embed", shape, "bytes", 6 * elements, [&] {
      embed(pointer_to<std::int32_t>(ids_on_gpu), weight_of(table), {0, sizes_.vocab}, rows_of(x),
            size, stream());
    });
    measure("select_rows", shape, "bytes", 8 * elements, [&] {
      select_rows(rows_of(x), pointer_to<std::int32_t>(order_on_gpu), rows_of(y), size, stream());
    });
  }

  void rope() {
    const std::int64_t rows = sizes_.rows, q_columns = sizes_.heads * sizes_.head_dim,
                       kv_columns = sizes_.kv_heads * sizes_.head_dim;
    Cache cache = cache_of(1, rows, 1);
    Tensor q = random(rows, q_columns), k = random(rows, kv_columns), v = random(rows, kv_columns);
    Tensor cos = random(rows, sizes_.head_dim / 2), sin = random(rows, sizes_.head_dim / 2);
    std::vector<std::int32_t> counted(static_cast<std::size_t>(rows));
    std::iota(counted.begin(), counted.end(), 0);
    Tensor numbers = integers_on_gpu(*device_, counted);  // as positions and as slots
    RopeKv args{.rows = rows, .head_dim = sizes_.head_dim, .query_heads = sizes_.heads};
    args.q = rows_of(q);
    args.kv_heads = sizes_.kv_heads;
    args.k = rows_of(k);
    args.v = rows_of(v);
    args.positions = args.slots = pointer_to<std::int32_t>(numbers);
    args.cos = rows_of(cos).data;
    args.sin = rows_of(sin).data;
    args.cache = cache.paged;
    measure("rope_store_kv",
            fmt::format("{} rows, {} + {} heads of {}", rows, sizes_.heads, sizes_.kv_heads,
                        sizes_.head_dim),
            "bytes", rows * (8 * q_columns + (8 + 4 + 2 * 2) * kv_columns),
            [&] { rope_store_kv(args, stream()); });
  }

  void selection() {
    const Extent size{sizes_.logit_rows, sizes_.vocab};
    constexpr std::int64_t kTopK = 20;
    Tensor logits = random(size.rows, size.columns);
    Tensor workspace =
        device_->allocate({selection_workspace_bytes(size, kTopK) / 4 + 4}, DType::f32, "bench");
    Tensor values = random(size.rows, kTopK),
           columns = device_->allocate({size.rows, kTopK}, DType::i32, "bench");
    const Selected out{rows_of(values).data, reinterpret_cast<std::int32_t*>(columns.view().data)};
    const std::int64_t bytes = 4 * size.rows * size.columns;
    const std::string shape = product_of({size.rows, size.columns});
    measure("arg_max", shape, "bytes", bytes,
            [&] { arg_max(rows_of(logits), size, workspace.view().data, out, stream()); });
    measure("top_k", fmt::format("{}, k {}", shape, kTopK), "bytes", bytes,
            [&] { top_k(rows_of(logits), size, kTopK, workspace.view().data, out, stream()); });
  }

  void reduce() {
    constexpr int kRanks = 4;
    const std::int64_t elements = sizes_.rows * sizes_.hidden;
    std::vector<Tensor> operands;
    ReduceSources sources;
    for (int rank = 0; rank < kRanks; ++rank) {
      operands.push_back(random(1, elements));
      sources.rank[sources.count++] = operands.back().view().data;
    }
    Tensor sum = random(1, elements);
    measure("reduce_ranks", fmt::format("{} ranks, {} elements", kRanks, elements), "bytes",
            (kRanks + 1) * 4 * elements, [&] {
              reduce_ranks(sources, DType::f32, {0, elements}, sum.view().data, stream());
            });
  }

  cudaStream_t stream() const { return device_->stream(); }

  static constexpr float kEps = 1e-5f;
  bool small_;
  Sizes sizes_;
  int multiprocessors_ = 0;
  std::unique_ptr<CudaDevice> device_;
  GpuTimer timer_;
};

}  // namespace

void bench_kernels(const Settings& settings) {
  KernelBench(settings.small).run();
}

}  // namespace tp::bench

#include "common/device/cuda/cuda_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/device/cuda/activation.h"
#include "common/device/cuda/check.h"
#include "common/device/cuda/decode_attention.h"
#include "common/device/cuda/elementwise.h"
#include "common/device/cuda/embedding.h"
#include "common/device/cuda/prefill_attention.h"
#include "common/device/cuda/rms_norm.h"
#include "common/device/cuda/rope_kv.h"
#include "common/device/cuda/selection.h"

namespace tp::cuda {

namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;  // one half
constexpr char kWorkspace[] = "workspace";                   // tag of the memory

Rows rows_of(TensorView x) {
  return {reinterpret_cast<float*>(x.data), x.row_stride};
}

ConstRows rows_of(ConstTensorView x) {
  return {reinterpret_cast<const float*>(x.data), x.row_stride};
}

WeightRows weight_of(ConstTensorView x) {
  return {x.data, x.dtype, x.row_stride};
}

Extent extent_of(ConstTensorView x) {
  return {x.rows(), x.row_elements()};
}

PagedKv paged(const KvLayer& kv) {
  return {kv.keys.data,        kv.values.data,  kv.keys.dtype, kv.keys.row_stride,
          kv.kv_heads_local(), kv.block_size(), kv.head_dim()};
}

std::size_t row_bytes_of(ConstTensorView x) {
  return static_cast<std::size_t>(x.row_elements()) * size_of(x.dtype);
}

// CUDA refuses distances of 2 GiB and more. That of a single row, which for_pieces makes of any
// large tensor, leads nowhere.
std::size_t pitch_of(ConstTensorView x) {
  if (x.rows() <= 1) return row_bytes_of(x);
  return static_cast<std::size_t>(x.row_stride) * size_of(x.dtype);
}

// Calls use(piece of a, piece of b) for pieces that cover both, none larger than `bytes` in the
// larger of the two dtypes. What is contiguous on both sides is one long row.
template <class A, class B, class Use>
void for_pieces(A a, B b, std::size_t bytes, const Use& use) {
  const auto flat = [](auto view, std::int64_t rows, std::int64_t columns) {
    view.shape = {rows, columns};
    if (rows == 1) view.row_stride = columns;
    return view;
  };
  const bool one_row = a.contiguous() && b.contiguous();
  const std::int64_t rows = one_row ? 1 : a.rows();
  const std::int64_t columns = one_row ? a.shape.elements() : a.row_elements();
  a = flat(a, rows, columns);
  b = flat(b, rows, columns);
  const auto room = static_cast<std::int64_t>(bytes / std::max(size_of(a.dtype), size_of(b.dtype)));
  const std::int64_t wide = std::min(columns, room);
  const std::int64_t tall =
      wide == 0 ? 0 : std::max<std::int64_t>(1, room / std::max<std::int64_t>(wide, 1));
  for (std::int64_t row = 0; row < rows && wide > 0; row += tall)
    for (std::int64_t column = 0; column < columns; column += wide) {
      const Range down{row, std::min(row + tall, rows)},
          across{column, std::min(column + wide, columns)};
      use(a.rows_in(down).columns_in(across), b.rows_in(down).columns_in(across));
    }
}

class CudaStep final : public CapturedStep {
 public:
  explicit CudaStep(cudaGraph_t graph) : graph_(graph) {
    check(cudaGraphGetNodes(graph, nullptr, &nodes_), "cudaGraphGetNodes");
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    exec_.reset(exec);
  }
  std::int64_t operations() const override { return static_cast<std::int64_t>(nodes_); }
  cudaGraphExec_t exec() const { return exec_.get(); }

 private:
  Graph graph_;
  GraphExec exec_;
  std::size_t nodes_ = 0;
};

}  // namespace

CudaDevice::CudaDevice(const CudaDeviceOptions& options) : options_(options) {
  check(cudaSetDevice(options.gpu), fmt::format("cudaSetDevice({})", options.gpu));
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, options.gpu),
        "cudaDeviceGetAttribute(MultiProcessorCount)");
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  gpu_bytes_ = static_cast<std::int64_t>(total);
  stream_ = make_stream();
  event_ = make_event();
  for (Event& event : staging_free_) event = make_event();
  arrays_.emplace(
      stream(),
      [this](std::int64_t integers) { return allocate({integers}, DType::i32, kWorkspace); },
      [this](cudaEvent_t event) { wait_for(event); });
}

// What the stream still has to do may use the memory that goes now. After an error nobody waits for
// the end of it: a rank that is lost may never let it come. cudaFree waits in its own way.
CudaDevice::~CudaDevice() = default;

std::int64_t CudaDevice::free_bytes() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const double share =
      static_cast<double>(gpu_bytes_) * options_.memory_utilization / options_.ranks_on_gpu;
  const auto mine = static_cast<std::int64_t>(share) - memory().total_bytes();
  return std::clamp<std::int64_t>(mine, 0, static_cast<std::int64_t>(free) / options_.ranks_on_gpu);
}

Buffer CudaDevice::do_allocate(std::int64_t bytes) {
  void* memory = nullptr;
  // A tensor without elements has an address, too.
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  const cudaError_t result = cudaMalloc(&memory, size);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is reported here, not with the next call
    throw std::bad_alloc();
  }
  check(result, fmt::format("cudaMalloc of {} bytes", bytes));
  Buffer buffer(static_cast<std::byte*>(memory), [](std::byte* p) { cudaFree(p); });
  check(cudaMemsetAsync(memory, 0, size, stream()), "cudaMemsetAsync");
  return buffer;
}

void CudaDevice::refuse_in_capture(const char* what) const {
  if (capturing_)
    throw Error(ErrorKind::rank,
                fmt::format("a step is captured that {}; only work of the GPU itself can be "
                            "captured, so do this before or behind it",
                            what));
}

void CudaDevice::wait_for(cudaEvent_t event) {
  if (!waiting_check()) return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  for (;;) {
    const cudaError_t result = cudaEventQuery(event);
    if (result != cudaErrorNotReady) return check(result, "waiting for the GPU");
    waiting_check()();
    std::this_thread::yield();
  }
}

void CudaDevice::synchronize() {
  refuse_in_capture("waits for the GPU");
  check(cudaEventRecord(event_.get(), stream()), "cudaEventRecord");
  wait_for(event_.get());
}

std::byte* CudaDevice::staging(int half) {
  if (!staging_) {
    staging_ = allocate_pinned(2 * kStagingBytes);
  } else {
    wait_for(staging_free_[half].get());  // an event that was never recorded has taken place
  }
  return staging_.get() + static_cast<std::size_t>(half) * kStagingBytes;
}

CopyFindings CudaDevice::do_write(ConstTensorView host, TensorView mine) {
  refuse_in_capture("writes a tensor of the host");
  CopyFindings findings;
  int half = 0;
  for_pieces(host, mine, kStagingBytes, [&](ConstTensorView from, TensorView to) {
    const TensorView staged{staging(half), from.shape, to.dtype, Place::host, from.row_elements()};
    const CopyFindings here = copy_host(from, staged);
    findings.not_finite += here.not_finite;
    findings.overflowed += here.overflowed;
    check(cudaMemcpy2DAsync(to.data, pitch_of(to), staged.data, pitch_of(staged), row_bytes_of(to),
                            static_cast<std::size_t>(to.rows()), cudaMemcpyHostToDevice, stream()),
          "cudaMemcpy2DAsync to the GPU");
    check(cudaEventRecord(staging_free_[half].get(), stream()), "cudaEventRecord");
    half = 1 - half;
  });
  return findings;
}

void CudaDevice::do_download(ConstTensorView mine, TensorView host) {
  refuse_in_capture("downloads a tensor");
  for_pieces(mine, host, kStagingBytes, [&](ConstTensorView from, TensorView to) {
    const TensorView staged{staging(0), from.shape, from.dtype, Place::host, from.row_elements()};
    check(cudaMemcpy2DAsync(staged.data, pitch_of(staged), from.data, pitch_of(from),
                            row_bytes_of(from), static_cast<std::size_t>(from.rows()),
                            cudaMemcpyDeviceToHost, stream()),
          "cudaMemcpy2DAsync from the GPU");
    check(cudaEventRecord(staging_free_[0].get(), stream()), "cudaEventRecord");
    wait_for(staging_free_[0].get());
    for (std::int64_t row = 0; row < to.rows(); ++row)  // integers too, which copy_host has not
      std::memcpy(to.rows_in({row, row + 1}).data, staged.rows_in({row, row + 1}).data,
                  row_bytes_of(to));
  });
}

void CudaDevice::do_copy(ConstTensorView from, TensorView to) {
  if (from.shape.elements() == 0) return;
  check(cudaMemcpy2DAsync(to.data, pitch_of(to), from.data, pitch_of(from), row_bytes_of(to),
                          static_cast<std::size_t>(to.rows()), cudaMemcpyDeviceToDevice, stream()),
        "cudaMemcpy2DAsync on the GPU");
}

void* CudaDevice::workspace(std::int64_t bytes) {
  if (workspace_.empty() || workspace_.shape()[0] * 4 < bytes) {
    if (captured_)
      throw Error(
          ErrorKind::rank,
          fmt::format("an operation needs a workspace of {} bytes, but {} are reserved, and "
                      "captured steps know where they are",
                      bytes, workspace_.empty() ? 0 : workspace_.shape()[0] * 4));
    workspace_ = {};  // the GPU has done with it before the memory goes
    workspace_ = allocate({(bytes + 3) / 4}, DType::i32, kWorkspace);
  }
  return workspace_.view().data;
}

Products& CudaDevice::products() {
  if (!products_) {
    // As much as cuBLAS would take by itself, unless the GPU is small.
    const std::int64_t mib = gpu_bytes_ >= (std::int64_t{32} << 30) ? 32 : 4;
    blas_workspace_ = allocate({mib << 18}, DType::i32, kWorkspace);
    products_.emplace(stream(), blas_workspace_);
  }
  return *products_;
}

void CudaDevice::reserve(const StepLimits& limits) {
  limits_ = limits;
  const std::int64_t blocks = blocks_for(limits.context_tokens, limits.block_size);
  arrays_->reserve(StepArrays::integers_of(limits.rows, limits.logit_rows, limits.rows, blocks));
  const std::int64_t rounded = limits.rows * limits.input_features * 2;
  // A decode step has at most as many sequences as rows. The more there are, the fewer the splits,
  // in steps: so any number of them may be the one with the most partial results.
  std::int64_t partials = 0;
  for (std::int64_t sequences = 1; sequences <= limits.rows; ++sequences)
    partials = std::max(partials,
                        decode_workspace_bytes(
                            sequences, limits.query_heads, limits.head_dim,
                            decode_splits(sequences, 1, limits.context_tokens, multiprocessors_)));
  const Extent logits{limits.logit_rows, limits.logit_columns};
  // Of the selection also the results: a value and a column for each row.
  const std::int64_t selected =
      selection_workspace_bytes(logits, kMaxTopK) + limits.logit_rows * kMaxTopK * 8;
  workspace(std::max({rounded, partials, selected}));
  products();
}

void CudaDevice::begin_step(const BatchView& batch,
                            std::span<const std::int32_t> token_ids,
                            std::span<const std::int32_t> logit_rows) {
  arrays_->begin_step(batch, token_ids, logit_rows);
}

void CudaDevice::begin_capture() {
  products();
  arrays_->capture(true);
  captured_ = capturing_ = true;
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}

std::unique_ptr<CapturedStep> CudaDevice::end_capture() {
  arrays_->capture(false);
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
  return std::make_unique<CudaStep>(graph);
}

void CudaDevice::abandon_capture() {
  arrays_->capture(false);
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream(), &graph);  // an error, if the capture was spoilt
  Graph forgotten(graph);
  cudaGetLastError();  // known already, and not to be reported with the next call
}

void CudaDevice::replay(CapturedStep& step) {
  check(cudaGraphLaunch(dynamic_cast<CudaStep&>(step).exec(), stream()), "cudaGraphLaunch");
}

void CudaDevice::do_matmul(ConstTensorView x,
                           ConstTensorView w,
                           TensorView y,
                           const SumBlocks& /*cuBLAS has an order of its own*/) {
  if (y.shape.elements() == 0) return;
  if (x.row_elements() == 0) {  // no input features: zeros
    for (std::int64_t row = 0; row < y.rows(); ++row)
      check(cudaMemsetAsync(y.rows_in({row, row + 1}).data, 0, row_bytes_of(y), stream()),
            "cudaMemsetAsync");
    return;
  }
  if (w.dtype == DType::f32) return products().multiply(x, w, y);
  void* const rounded = workspace(x.rows() * x.row_elements() * 2);
  round_rows(rows_of(x), extent_of(x), rounded, w.dtype, stream());
  products().multiply({static_cast<const std::byte*>(rounded),
                       {x.rows(), x.row_elements()},
                       w.dtype,
                       Place::cuda,
                       x.row_elements()},
                      w, y);
}

void CudaDevice::do_add_bias(TensorView x, ConstTensorView bias) {
  cuda::add_bias(rows_of(x), weight_of(bias), extent_of(x), stream());
}

void CudaDevice::do_add(TensorView x, ConstTensorView y) {
  cuda::add(rows_of(x), rows_of(y), extent_of(x), stream());
}

void CudaDevice::do_gated_activation(ConstTensorView gate,
                                     ConstTensorView up,
                                     TensorView y,
                                     Activation act) {
  cuda::gated_activation(rows_of(gate), rows_of(up), rows_of(y), extent_of(y), act, stream());
}

void CudaDevice::do_activate(TensorView x, Activation act) {
  cuda::activate(rows_of(x), extent_of(x), act, stream());
}

void CudaDevice::do_embed(std::span<const std::int32_t> ids,
                          ConstTensorView table,
                          Range rows,
                          TensorView y) {
  cuda::embed(arrays_->find(ids), weight_of(table), rows, rows_of(y), extent_of(y), stream());
}

void CudaDevice::do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) {
  cuda::rms_norm(rows_of(x), weight_of(weight), eps, rows_of(y), extent_of(x), stream());
}

void CudaDevice::do_add_rms_norm(
    TensorView x, ConstTensorView delta, ConstTensorView weight, float eps, TensorView y) {
  cuda::add_rms_norm(rows_of(x), rows_of(delta), weight_of(weight), eps, rows_of(y), extent_of(x),
                     stream());
}

void CudaDevice::do_rms_norm_heads(TensorView x, ConstTensorView weight, float eps) {
  const std::int64_t head_dim = weight.shape.elements();
  const HeadRows size{x.rows(), head_dim == 0 ? 0 : x.row_elements() / head_dim, head_dim};
  cuda::rms_norm_heads(rows_of(x), weight_of(weight), eps, size, stream());
}

void CudaDevice::do_select_rows(ConstTensorView x,
                                std::span<const std::int32_t> rows,
                                TensorView y) {
  cuda::select_rows(rows_of(x), arrays_->find(rows), rows_of(y), extent_of(y), stream());
}

void CudaDevice::do_rope(TensorView x,
                         const RopeTable& table,
                         std::span<const std::int32_t> positions) {
  const std::int64_t head_dim = 2 * table.cos.shape()[1];
  rope_store_kv({.rows = x.rows(),
                 .head_dim = head_dim,
                 .query_heads = x.row_elements() / head_dim,
                 .q = rows_of(x),
                 .positions = arrays_->find(positions),
                 .cos = rows_of(table.cos.view()).data,
                 .sin = rows_of(table.sin.view()).data},
                stream());
}

void CudaDevice::do_store_kv(ConstTensorView keys,
                             ConstTensorView values,
                             std::span<const std::int32_t> slot_mapping,
                             const KvLayer& kv) {
  // Without positions nothing is rotated, so the keys are only read.
  const Rows k{const_cast<float*>(rows_of(keys).data), keys.row_stride};
  rope_store_kv({.rows = keys.rows(),
                 .head_dim = kv.head_dim(),
                 .kv_heads = kv.kv_heads_local(),
                 .k = k,
                 .v = rows_of(values),
                 .slots = arrays_->find(slot_mapping),
                 .cache = paged(kv)},
                stream());
}

void CudaDevice::do_rope_and_store_kv(TensorView q,
                                      TensorView k,
                                      ConstTensorView v,
                                      const RopeTable& table,
                                      const BatchView& batch,
                                      const KvLayer& kv) {
  const std::int64_t head_dim = kv.head_dim();
  rope_store_kv({.rows = q.rows(),
                 .head_dim = head_dim,
                 .query_heads = q.row_elements() / head_dim,
                 .q = rows_of(q),
                 .kv_heads = kv.kv_heads_local(),
                 .k = rows_of(k),
                 .v = rows_of(v),
                 .positions = arrays_->find(batch.positions),
                 .cos = rows_of(table.cos.view()).data,
                 .sin = rows_of(table.sin.view()).data,
                 .slots = arrays_->find(batch.slot_mapping),
                 .cache = paged(kv)},
                stream());
}

void CudaDevice::do_attention(ConstTensorView q,
                              const KvLayer& kv,
                              const HeadShard& heads,
                              const BatchView& batch,
                              TensorView y,
                              std::int64_t window) {
  const DeviceBatch sequences = arrays_->find(batch);
  if (sequences.num_decode > 0 && heads.query.size() > 0) {
    // A captured step must be good for every context that fits.
    const std::int64_t longest =
        limits_.context_tokens > 0 ? limits_.context_tokens : sequences.longest_decode_tokens;
    const std::int64_t splits =
        decode_splits(sequences.num_decode, kv.kv_heads_local(), longest, multiprocessors_);
    const std::int64_t bytes =
        decode_workspace_bytes(sequences.num_decode, heads.query.size(), kv.head_dim(), splits);
    decode_attention({.q = rows_of(q),
                      .cache = paged(kv),
                      .heads = heads,
                      .sequences = sequences.decode,
                      .num_sequences = sequences.num_decode,
                      .window = window,
                      .splits = splits,
                      .workspace = bytes > 0 ? workspace(bytes) : nullptr,
                      .y = rows_of(y)},
                     stream());
  }
  if (sequences.num_tiles > 0 && heads.query.size() > 0)
    prefill_attention({.q = rows_of(q),
                       .cache = paged(kv),
                       .heads = heads,
                       .sequences = sequences.prefill,
                       .tiles = sequences.tiles,
                       .num_tiles = sequences.num_tiles,
                       .window = window,
                       .y = rows_of(y)},
                      stream());
}

void CudaDevice::select(ConstTensorView x,
                        std::int64_t k,
                        std::span<std::int32_t> columns,
                        std::span<float> values) {
  const std::int64_t count = x.rows() * k;
  if (count == 0) return;
  const std::int64_t scratch = (selection_workspace_bytes(extent_of(x), k) + 15) / 16 * 16;
  auto* const memory = static_cast<std::byte*>(workspace(scratch + count * 8));
  auto* const found_values = reinterpret_cast<float*>(memory + scratch);
  auto* const found_columns = reinterpret_cast<std::int32_t*>(found_values + count);
  const Selected selected{found_values, found_columns};
  if (k == 1)
    arg_max(rows_of(x), extent_of(x), memory, selected, stream());
  else
    top_k(rows_of(x), extent_of(x), k, memory, selected, stream());
  // Values and columns stand one behind the other, and come in one transfer: the host waits once.
  std::vector<std::int32_t> words(static_cast<std::size_t>(2 * count));
  do_download({memory + scratch, {2 * count}, DType::i32, Place::cuda, 1},
              view_of(words.data(), {2 * count}));
  std::memcpy(values.data(), words.data(), static_cast<std::size_t>(count) * sizeof(float));
  std::copy_n(words.begin() + count, count, columns.begin());
}

void CudaDevice::do_row_argmax(ConstTensorView x, std::span<std::int32_t> columns) {
  std::vector<float> values(columns.size());
  select(x, 1, columns, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i])) columns[i] = -1;
}

void CudaDevice::do_row_top_k(ConstTensorView x,
                              std::int64_t k,
                              std::span<std::int32_t> columns,
                              std::span<float> values) {
  select(x, k, columns, values);
}

std::unique_ptr<CudaDevice> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace tp::cuda

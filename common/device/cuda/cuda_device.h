// The device of a rank on a GPU. [chapters with --device cuda]
//
// Matrix products are cuBLAS's, all other operations are kernels of this folder, one family per
// file. Everything runs on one stream of its own; several ranks may share a GPU, each with its device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/device/cuda/handles.h"
#include "common/device/cuda/products.h"
#include "common/device/cuda/step_arrays.h"
#include "common/device/device.h"

namespace tp::cuda {

struct CudaDeviceOptions {
  int gpu = 0;                      // among the visible ones
  double memory_utilization = 0.9;  // part of the GPU's memory that its ranks together may use
  int ranks_on_gpu = 1;
};

class CudaDevice final : public Device {
 public:
  // Makes the GPU the current one of this thread, which must be the only one to use the object.
  // Errors: tp::Error (device) if there is no such GPU.
  explicit CudaDevice(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  int gpu() const { return options_.gpu; }
  cudaStream_t stream() const { return stream_.get(); }

  Place place() const override { return Place::cuda; }
  bool computes_with(DType dtype) const override { return dtype != DType::i32; }
  // Of this rank's share of the GPU's memory, and of what is free on the GPU.
  std::int64_t free_bytes() const override;
  void synchronize() override;
  void reserve(const StepLimits& limits) override;
  void begin_step(const BatchView& batch,
                  std::span<const std::int32_t> token_ids,
                  std::span<const std::int32_t> logit_rows) override;
  bool can_capture() const override { return true; }
  void begin_capture() override;
  std::unique_ptr<CapturedStep> end_capture() override;
  void abandon_capture() override;
  void replay(CapturedStep& step) override;

 private:
  DType dtype_to_keep(DType stored) const override { return stored; }
  Buffer do_allocate(std::int64_t bytes) override;
  CopyFindings do_write(ConstTensorView host, TensorView mine) override;
  void do_download(ConstTensorView mine, TensorView host) override;
  void do_copy(ConstTensorView from, TensorView to) override;
  void do_matmul(ConstTensorView x, ConstTensorView w, TensorView y, const SumBlocks& b) override;
  void do_add_bias(TensorView x, ConstTensorView bias) override;
  void do_add(TensorView x, ConstTensorView y) override;
  void do_gated_activation(ConstTensorView gate,
                           ConstTensorView up,
                           TensorView y,
                           Activation act) override;
  void do_activate(TensorView x, Activation act) override;
  void do_embed(std::span<const std::int32_t> ids,
                ConstTensorView table,
                Range rows,
                TensorView y) override;
  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView y) override;
  void do_add_rms_norm(TensorView x,
                       ConstTensorView delta,
                       ConstTensorView weight,
                       float eps,
                       TensorView y) override;
  void do_rms_norm_heads(TensorView x, ConstTensorView weight, float eps) override;
  void do_select_rows(ConstTensorView x, std::span<const std::int32_t> rows, TensorView y) override;
  void do_rope(TensorView x,
               const RopeTable& table,
               std::span<const std::int32_t> positions) override;
  void do_store_kv(ConstTensorView keys,
                   ConstTensorView values,
                   std::span<const std::int32_t> slot_mapping,
                   const KvLayer& kv) override;
  void do_rope_and_store_kv(TensorView q,
                            TensorView k,
                            ConstTensorView v,
                            const RopeTable& table,
                            const BatchView& batch,
                            const KvLayer& kv) override;
  void do_row_argmax(ConstTensorView x, std::span<std::int32_t> columns) override;
  void do_row_top_k(ConstTensorView x,
                    std::int64_t k,
                    std::span<std::int32_t> columns,
                    std::span<float> values) override;
  void do_attention(ConstTensorView q,
                    const KvLayer& kv,
                    const HeadShard& heads,
                    const BatchView& batch,
                    TensorView y,
                    std::int64_t window) override;

  Products& products();
  // Memory for what one operation computes on its way, valid until the next one takes some.
  void* workspace(std::int64_t bytes);
  // Throws for what a replay would not do again.
  void refuse_in_capture(const char* what) const;
  void wait_for(cudaEvent_t event);
  // The largest elements of each row, on the host.
  void select(ConstTensorView x,
              std::int64_t k,
              std::span<std::int32_t> columns,
              std::span<float> values);
  // Pinned memory for transfers, in two halves.
  std::byte* staging(int half);

  CudaDeviceOptions options_;
  int multiprocessors_ = 0;
  std::int64_t gpu_bytes_ = 0;
  Stream stream_;
  Event event_;  // for waiting
  std::optional<StepArrays> arrays_;
  std::optional<Products> products_;
  Tensor blas_workspace_, workspace_;
  PinnedBytes staging_;
  Event staging_free_[2];
  StepLimits limits_;  // that were reserved
  bool capturing_ = false;
  bool captured_ = false;  // a captured step knows where the workspace is
};

std::unique_ptr<CudaDevice> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace tp::cuda

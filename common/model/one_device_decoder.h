// The same decoder on one device: what every split is compared with. [introduced in chapter 06]
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "common/device/device.h"
#include "common/device/rope_table.h"
#include "common/model/config.h"
#include "common/model/kv_cache.h"
#include "common/model/tap.h"
#include "common/model/weights.h"

namespace tp {

// Where a GPU rounds to 16 bits, which this device does not by itself: activations before each
// product with weights of 16 bits, keys and values that are stored so. With these roundings the two
// differ only by the order of sums, and by the few values that fall to the other side because of it.
struct GpuRounding {
  bool activations = false;
  DType kv = DType::f32;
};

// Knows nothing of ranks, and of blocks only one: it runs one sequence. It computes with the whole
// weights, where they lie in their file. It is written to be read beside Decoder, step by step.
class OneDeviceDecoder {
 public:
  OneDeviceDecoder(const ModelConfig& config,
                   const Weights& weights,
                   std::int64_t max_tokens,
                   const GpuRounding& rounding = {});

  // Runs tokens at first_position, ...; returns the logits of the last `logit_rows` of them.
  // Shapes: logits [logit_rows, vocab_size].
  Tensor forward(std::span<const std::int32_t> ids,
                 std::int64_t first_position,
                 std::int64_t logit_rows,
                 const Tap& tap = {});

 private:
  // The weight as the ranks store it: a copy if that is another dtype than in the file, or if it
  // lies there so that it cannot be computed with.
  ConstTensorView stored(ConstTensorView weight);
  // The values of x as they are after a rounding to `dtype`: x itself for f32, else in `copy`.
  ConstTensorView rounded(ConstTensorView x, DType dtype, Tensor& copy);
  Tensor linear(ConstTensorView x, const WholeLinear& layer, std::int64_t unit = 1);
  Tensor norm(ConstTensorView x, ConstTensorView weight);
  void norm_heads(TensorView x, ConstTensorView weight);

  ModelConfig config_;
  const Weights& weights_;
  GpuRounding rounding_;
  std::unique_ptr<Device> device_;
  RopeTable rope_;
  KvCache kv_;
  std::map<const std::byte*, Tensor> converted_;
};

}  // namespace tp

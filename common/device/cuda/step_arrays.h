// The integers of a step in the memory of a GPU: token ids, positions, slots, block tables.
// [chapter 06]
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include "common/core/tensor.h"
#include "common/device/batch.h"
#include "common/device/cuda/handles.h"
#include "common/device/cuda/paged_kv.h"
#include "common/device/cuda/prefill_attention.h"

namespace tp::cuda {

// A step's sequences as the attention kernels want them: those with one new token apart from those
// with several, whose rows are cut into tiles.
struct DeviceBatch {
  DeviceSequences decode, prefill;
  std::int64_t num_decode = 0;
  const PrefillTile* tiles = nullptr;
  std::int64_t num_tiles = 0;
  std::int64_t longest_decode_tokens = 0;  // of context
};

// Copies of integer arrays. Those of the current step are uploaded once, all in one copy, and found
// again by their address on the host and their values. They lie in the same places for all steps of
// the same sizes, so that a captured step reads the arrays of the step it is replayed for. Any other
// array is copied for one operation, into a ring.
class StepArrays {
 public:
  // Allocates device memory for a number of integers.
  using Allocate = std::function<Tensor(std::int64_t integers)>;
  // Returns when the event has taken place.
  using Wait = std::function<void(cudaEvent_t)>;

  StepArrays(cudaStream_t stream, Allocate allocate, Wait wait);

  // Room for the arrays of a step, and no less later.
  void reserve(std::int64_t integers);
  // While a step is captured only its own arrays can be found, and from then on the room must
  // suffice: the captured step knows where they are.
  void capture(bool begins) {
    capturing_ = begins;
    pinned_down_ = true;
  }

  // Stream: the arrays are there for all later work of the stream.
  // Errors: tp::Error (rank) if they need more room than a captured step allows.
  void begin_step(const BatchView& batch,
                  std::span<const std::int32_t> token_ids,
                  std::span<const std::int32_t> logit_rows);

  // Where the array is on the device: that of the step if it is one of its arrays, else a new copy,
  // which is good for the next operation only.
  // Errors: tp::Error (rank) if it would have to be copied while a step is captured.
  const std::int32_t* find(std::span<const std::int32_t> array);
  DeviceBatch find(const BatchView& batch);

  // Integers that the arrays of the largest step take.
  static std::int64_t integers_of(std::int64_t rows,
                                  std::int64_t logit_rows,
                                  std::int64_t sequences,
                                  std::int64_t blocks_per_sequence);

 private:
  // An array of the step: where it was on the host, and where it stands in `step_packed_`.
  struct Known {
    const std::int32_t* host = nullptr;
    std::size_t size = 0;
    std::int64_t offset = 0;
  };
  // Pinned memory, and the last copy out of it.
  struct Source {
    PinnedBytes memory;
    std::int64_t integers = 0;
    Event copied;
    bool in_use = false;
  };

  struct Offsets {  // of the parts of a packed batch
    std::int64_t decode = 0, prefill = 0, tiles = 0, tables = 0;
    std::int64_t num_decode = 0, num_tiles = 0, longest_decode_tokens = 0;
  };

  static Offsets pack_batch(const BatchView& batch, std::vector<std::int32_t>& packed);
  static DeviceBatch batch_at(const std::int32_t* device, const Offsets& offsets);
  bool is_of_step(const BatchView& batch) const;
  const std::int32_t* copy_to_ring(std::span<const std::int32_t> packed);
  void copy(std::span<const std::int32_t> packed, std::int32_t* to);
  std::int32_t* step_data() { return reinterpret_cast<std::int32_t*>(step_.view().data); }

  cudaStream_t stream_;
  Allocate allocate_;
  Wait wait_;
  bool capturing_ = false;
  bool pinned_down_ = false;

  Tensor step_;                            // device memory of the current step
  std::vector<std::int32_t> step_packed_;  // the same on the host
  std::vector<Known> known_;
  std::vector<SequenceRows> step_sequences_;  // whose block tables stand in step_packed_
  Offsets step_offsets_;

  Tensor ring_;  // device memory for single operations
  std::int64_t ring_used_ = 0;

  Source sources_[2];  // in turns
  int next_source_ = 0;
};

}  // namespace tp::cuda

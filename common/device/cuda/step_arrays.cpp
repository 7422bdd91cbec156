#include "common/device/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/device/cuda/check.h"

namespace tp::cuda {

namespace {

constexpr std::int64_t kRingIntegers = 1 << 18;
constexpr std::int64_t kAlign = 4;  // integers: arrays begin at multiples of 16 bytes

std::int64_t aligned(std::int64_t integers) {
  return (integers + kAlign - 1) / kAlign * kAlign;
}

std::int64_t tiles_of(std::int64_t rows) {
  return (rows + kPrefillTileRows - 1) / kPrefillTileRows;
}

// Appends the bytes of `values`; returns where they begin.
template <class T>
std::int64_t append(std::vector<std::int32_t>& packed, std::span<const T> values) {
  static_assert(sizeof(T) % sizeof(std::int32_t) == 0);
  const auto begin = static_cast<std::size_t>(aligned(std::ssize(packed)));
  packed.resize(begin + values.size_bytes() / sizeof(std::int32_t));
  if (!values.empty()) std::memcpy(packed.data() + begin, values.data(), values.size_bytes());
  return static_cast<std::int64_t>(begin);
}

}  // namespace

StepArrays::StepArrays(cudaStream_t stream, Allocate allocate, Wait wait)
    : stream_(stream), allocate_(std::move(allocate)), wait_(std::move(wait)) {
  for (Source& source : sources_) source.copied = make_event();
}

std::int64_t StepArrays::integers_of(std::int64_t rows,
                                     std::int64_t logit_rows,
                                     std::int64_t sequences,
                                     std::int64_t blocks_per_sequence) {
  constexpr std::int64_t kSequence = sizeof(DeviceSequence) / sizeof(std::int32_t);
  constexpr std::int64_t kTile = sizeof(PrefillTile) / sizeof(std::int32_t);
  // Each array may need kAlign integers to begin where it should; every sequence may have a tile
  // that is not full.
  return aligned(3 * rows + logit_rows + sequences * (kSequence + blocks_per_sequence) +
                 (tiles_of(rows) + sequences) * kTile) +
         8 * kAlign;
}

void StepArrays::reserve(std::int64_t integers) {
  if (!step_.empty() && step_.shape()[0] >= integers) return;
  if (pinned_down_)
    throw Error(ErrorKind::rank,
                fmt::format("the arrays of a step need {} integers, but {} are reserved, and "
                            "captured steps know where they are; reserve more before",
                            integers, step_.shape()[0]));
  step_ = allocate_(integers);
  known_.clear();
  step_sequences_.clear();
}

void StepArrays::begin_step(const BatchView& batch,
                            std::span<const std::int32_t> token_ids,
                            std::span<const std::int32_t> logit_rows) {
  std::vector<Known> known;
  step_packed_.clear();
  for (const std::span<const std::int32_t> array :
       {token_ids, batch.positions, batch.slot_mapping, logit_rows})
    known.push_back({array.data(), array.size(), append(step_packed_, array)});
  step_offsets_ = pack_batch(batch, step_packed_);
  reserve(std::ssize(step_packed_));  // a larger room forgets what was known
  known_ = std::move(known);
  step_sequences_.assign(batch.sequences.begin(), batch.sequences.end());
  copy(step_packed_, step_data());
}

const std::int32_t* StepArrays::find(std::span<const std::int32_t> array) {
  for (const Known& known : known_)
    if (known.host == array.data() && known.size == array.size() &&
        std::equal(array.begin(), array.end(), step_packed_.begin() + known.offset))
      return step_data() + known.offset;
  return copy_to_ring(array);
}

DeviceBatch StepArrays::find(const BatchView& batch) {
  if (is_of_step(batch)) return batch_at(step_data(), step_offsets_);
  std::vector<std::int32_t> packed;
  const Offsets offsets = pack_batch(batch, packed);
  return batch_at(copy_to_ring(packed), offsets);
}

bool StepArrays::is_of_step(const BatchView& batch) const {
  auto table = step_packed_.begin() + step_offsets_.tables;
  const auto same = [&](const SequenceRows& now, const SequenceRows& then) {
    const auto begin = table;
    if (now.block_table.size() != then.block_table.size()) return false;
    table += std::ssize(then.block_table);
    return now.rows == then.rows && now.first_position == then.first_position &&
           std::equal(now.block_table.begin(), now.block_table.end(), begin);
  };
  return !step_sequences_.empty() &&
         std::equal(batch.sequences.begin(), batch.sequences.end(), step_sequences_.begin(),
                    step_sequences_.end(), same);
}

// Both kinds of sequences, the tiles, and the block tables, which alone differ in length between
// two decode steps with as many sequences, and so stand last.
StepArrays::Offsets StepArrays::pack_batch(const BatchView& batch,
                                           std::vector<std::int32_t>& packed) {
  std::vector<DeviceSequence> decode, prefill;
  std::vector<PrefillTile> tiles;
  std::vector<std::int32_t> tables;
  Offsets offsets;
  for (const SequenceRows& s : batch.sequences) {
    const DeviceSequence sequence{
        static_cast<std::int32_t>(s.rows.begin), static_cast<std::int32_t>(s.rows.size()),
        static_cast<std::int32_t>(s.first_position), static_cast<std::int32_t>(tables.size())};
    tables.insert(tables.end(), s.block_table.begin(), s.block_table.end());
    if (s.rows.size() == 1) {
      decode.push_back(sequence);
      offsets.longest_decode_tokens = std::max(offsets.longest_decode_tokens, s.first_position + 1);
      continue;
    }
    for (std::int64_t row = 0; row < s.rows.size(); row += kPrefillTileRows)
      tiles.push_back({static_cast<std::int32_t>(prefill.size()), static_cast<std::int32_t>(row)});
    prefill.push_back(sequence);
  }
  offsets.decode = append(packed, std::span<const DeviceSequence>(decode));
  offsets.prefill = append(packed, std::span<const DeviceSequence>(prefill));
  offsets.tiles = append(packed, std::span<const PrefillTile>(tiles));
  offsets.tables = append(packed, std::span<const std::int32_t>(tables));
  offsets.num_decode = std::ssize(decode);
  offsets.num_tiles = std::ssize(tiles);
  return offsets;
}

DeviceBatch StepArrays::batch_at(const std::int32_t* device, const Offsets& offsets) {
  const std::int32_t* const tables = device + offsets.tables;
  return {{reinterpret_cast<const DeviceSequence*>(device + offsets.decode), tables},
          {reinterpret_cast<const DeviceSequence*>(device + offsets.prefill), tables},
          offsets.num_decode,
          reinterpret_cast<const PrefillTile*>(device + offsets.tiles),
          offsets.num_tiles,
          offsets.longest_decode_tokens};
}

const std::int32_t* StepArrays::copy_to_ring(std::span<const std::int32_t> packed) {
  if (capturing_)
    throw Error(ErrorKind::rank,
                "a step is captured that uses integers which are not the step's own; give them to "
                "begin_step");
  const std::int64_t size = aligned(std::ssize(packed));
  // An operation may take two arrays of this size. In a ring of three times that the second, though
  // it may have to start again from the front, ends before the first begins.
  if (ring_.empty() || ring_.shape()[0] < 3 * size) {
    ring_ = allocate_(std::max(3 * size, kRingIntegers));
    ring_used_ = 0;
  }
  // Starting again from the front is safe: the copy takes its turn in the stream, behind the
  // operations that read what was there.
  if (ring_used_ + size > ring_.shape()[0]) ring_used_ = 0;
  auto* const place = reinterpret_cast<std::int32_t*>(ring_.view().data) + ring_used_;
  copy(packed, place);
  ring_used_ += size;
  return place;
}

// Through pinned memory, of which there are two pieces: the host fills one while the stream may
// still be copying from the other.
void StepArrays::copy(std::span<const std::int32_t> packed, std::int32_t* to) {
  if (packed.empty()) return;
  Source& source = sources_[next_source_];
  next_source_ = 1 - next_source_;
  if (source.in_use) wait_(source.copied.get());
  const std::int64_t integers = std::ssize(packed);
  if (source.integers < integers) {
    source.integers = std::max(integers, 2 * source.integers);
    source.memory =
        allocate_pinned(static_cast<std::size_t>(source.integers) * sizeof(std::int32_t));
  }
  std::memcpy(source.memory.get(), packed.data(), packed.size_bytes());
  check(cudaMemcpyAsync(to, source.memory.get(), packed.size_bytes(), cudaMemcpyHostToDevice,
                        stream_),
        "cudaMemcpyAsync of the integers of a step");
  check(cudaEventRecord(source.copied.get(), stream_), "cudaEventRecord");
  source.in_use = true;
}

}  // namespace tp::cuda

#include "sequences.h"

namespace tp {

namespace {

// The block table of sequence s has one entry, and this is it.
constexpr std::array<std::int32_t, kLengths.size()> kBlockOf{0, 1, 2};

void add_tokens(Step& step, std::size_t sequence, std::int64_t first, std::int64_t count) {
  step.batch.add(std::span(kBlockOf).subspan(sequence, 1), first, count);
  std::int64_t begin = 0;  // of the sequence among the rows of x
  for (std::size_t s = 0; s < sequence; ++s) begin += kLengths[s];
  for (std::int64_t t = first; t < first + count; ++t)
    step.rows.push_back(static_cast<std::int32_t>(begin + t));
}

Tensor allocate_pool(Device& device, std::int64_t kv_heads, std::int64_t head_dim) {
  const auto blocks = static_cast<std::int64_t>(kLengths.size());
  return device.allocate({blocks, kv_heads, kLongest, head_dim}, DType::f32, "kv");
}

}  // namespace

Step prefill() {
  Step step;
  for (std::size_t s = 0; s < kLengths.size(); ++s) add_tokens(step, s, 0, kLengths[s]);
  return step;
}

std::vector<Step> decode() {
  std::vector<Step> steps(kLongest);
  for (std::int64_t t = 0; t < kLongest; ++t)
    for (std::size_t s = 0; s < kLengths.size(); ++s)
      if (t < kLengths[s]) add_tokens(steps[static_cast<std::size_t>(t)], s, t, 1);
  return steps;
}

SequenceCache::SequenceCache(Device& device, std::int64_t kv_heads, std::int64_t head_dim)
    : keys_(allocate_pool(device, kv_heads, head_dim)),
      values_(allocate_pool(device, kv_heads, head_dim)) {}

}  // namespace tp

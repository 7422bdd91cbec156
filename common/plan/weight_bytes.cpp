#include "common/plan/weight_bytes.h"

#include <algorithm>

#include "common/model/tensor_split.h"
#include "common/model/weights.h"
#include "common/parallel/shards.h"

namespace tp {

namespace {

// How many indices of `mine` are in `before` or `after` too: the parts of the neighbours. Parts begin
// and end in the order of the ranks, so no other rank has more in common with this one.
std::int64_t shared_size(Range mine, Range before, Range after) {
  const std::int64_t front = std::clamp<std::int64_t>(before.end - mine.begin, 0, mine.size());
  const std::int64_t back = std::clamp<std::int64_t>(mine.end - after.begin, 0, mine.size());
  return std::min(mine.size(), front + back);
}

// What one rank holds of one tensor.
WeightBytes bytes_of(const ExpectedTensor& tensor,
                     const ModelConfig& config,
                     const WeightStorage& storage,
                     const CardPlace& place) {
  const bool projection = tensor.name.ends_with("_proj.weight");
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape.row_elements();
  const auto bytes = [&](std::int64_t r, std::int64_t c) {
    return projection ? storage.projection_bytes(r, c) : storage.other_bytes(r * c);
  };
  const auto split = split_of(tensor.name);
  if (!split) {
    const std::int64_t whole = bytes(rows, columns);
    return place.tp_size == 1 ? WeightBytes{.sharded = whole} : WeightBytes{.replicated = whole};
  }
  const auto part = [&](int rank) { return split->part(config, rank, place.tp_size); };
  const Range mine = part(place.rank);
  if (split->axis == SplitAxis::columns) return {.sharded = bytes(rows, mine.size())};

  const std::int64_t real = mine.within(rows).size();
  const Range before = place.rank > 0 ? part(place.rank - 1) : Range{0, 0};
  const Range after = place.rank + 1 < place.tp_size ? part(place.rank + 1) : Range{rows, rows};
  const std::int64_t all = bytes(mine.size(), columns);
  const std::int64_t pads = bytes(mine.size() - real, columns);
  const std::int64_t copies =
      bytes(shared_size(mine.within(rows), before.within(rows), after.within(rows)), columns);
  return {.sharded = all - pads - copies, .replicated = copies, .padded = pads};
}

// The embedding, the tensors of one layer, and what follows the layers.
std::vector<ExpectedTensor> tensors_of_one_layer(const ModelConfig& config) {
  ModelConfig one_layer = config;
  one_layer.num_hidden_layers = 1;
  return expected_tensors(one_layer);
}

bool is_in_layer(const ExpectedTensor& tensor) {
  return tensor.name.starts_with("model.layers.");
}

bool is_embedding(const ExpectedTensor& tensor) {
  return tensor.name.starts_with("model.embed_tokens.");
}

}  // namespace

Range CardPlace::layers(std::int64_t num_hidden_layers) const {
  return even_split(num_hidden_layers, stage, pp_size);
}

WeightBytes& WeightBytes::operator+=(const WeightBytes& other) {
  sharded += other.sharded;
  replicated += other.replicated;
  padded += other.padded;
  return *this;
}

WeightBytes weight_bytes(const ModelConfig& config,
                         const WeightStorage& storage,
                         const CardPlace& place) {
  const bool first = place.stage == 0, last = place.stage == place.pp_size - 1;
  const std::int64_t layers = place.layers(config.num_hidden_layers).size();
  WeightBytes sum;
  for (const ExpectedTensor& tensor : tensors_of_one_layer(config)) {
    std::int64_t times = last ? 1 : 0;  // final norm, lm_head
    if (is_in_layer(tensor)) times = layers;
    if (is_embedding(tensor)) times = first || (last && config.tie_word_embeddings) ? 1 : 0;
    const WeightBytes once = bytes_of(tensor, config, storage, place);
    sum += {once.sharded * times, once.replicated * times, once.padded * times};
  }
  return sum;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ExpectedTensor& tensor : tensors_of_one_layer(config))
    count += tensor.shape.elements() * (is_in_layer(tensor) ? config.num_hidden_layers : 1);
  return count;
}

}  // namespace tp

#include "by_hand.h"

namespace tp {

// [region by_hand]
HandCard card_by_hand(const PlanInput& input, const CardPlace& place) {
  const ModelConfig& c = input.config;
  const std::int64_t t = place.tp_size, r = place.rank, p = place.pp_size, s = place.stage;
  const std::int64_t hidden = c.hidden_size, d = c.head_dim;

  // Query heads in order; the KV heads that they read; features; rows of the padded vocabulary.
  const std::int64_t group = c.num_attention_heads / c.num_key_value_heads;
  const std::int64_t first_head = c.num_attention_heads * r / t;
  const std::int64_t last_head = c.num_attention_heads * (r + 1) / t - 1;
  const std::int64_t heads = last_head - first_head + 1;
  const std::int64_t kv_heads = last_head / group - first_head / group + 1;
  const std::int64_t q = heads * d, kv = kv_heads * d;
  const std::int64_t features = c.intermediate_size * (r + 1) / t - c.intermediate_size * r / t;
  const std::int64_t vocab_rows = (c.vocab_size + t - 1) / t;
  const std::int64_t layers = c.num_hidden_layers * (s + 1) / p - c.num_hidden_layers * s / p;

  const WeightStorage& w = input.weights;
  const std::int64_t bytes = w.format.quantized ? 2 : w.format.bits / 8;  // of all but projections
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    if (!w.format.quantized) return rows * columns * bytes;
    const std::int64_t groups = rows * columns / w.group;
    const std::int64_t zero_points = w.format.bits == 4 ? (groups + 1) / 2 : 0;
    return (rows * columns * w.format.bits + 7) / 8 + groups * 2 + zero_points;
  };
  const std::int64_t projections = matrix(q, hidden) + 2 * matrix(kv, hidden) + matrix(hidden, q) +
                                   2 * matrix(features, hidden) + matrix(hidden, features);
  const std::int64_t norms = 2 * hidden + (c.qk_norm ? 2 * d : 0);
  const std::int64_t biases = (c.qkv_bias ? q + 2 * kv : 0) + (c.o_bias ? hidden : 0) +
                              (c.mlp_bias ? 2 * features + hidden : 0);
  const std::int64_t table = vocab_rows * hidden * bytes;
  const bool first = s == 0, last = s == p - 1;

  HandCard card;
  card.weight_bytes = layers * (projections + (norms + biases) * bytes);
  if (first) card.weight_bytes += table;
  if (last) card.weight_bytes += hidden * bytes;                               // final norm
  if (last && (!c.tie_word_embeddings || !first)) card.weight_bytes += table;  // lm_head
  card.kv_bytes_per_token = 2 * layers * kv * input.kv.bits / 8;
  card.kv_budget_bytes = input.usable_bytes() - card.weight_bytes - input.overhead.context_bytes -
                         input.overhead.communication_bytes - input.overhead.activation_bytes;
  return card;
}
// [end by_hand]

std::int64_t parameters_by_hand(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, q = c.q_size(), kv = c.kv_size();
  const std::int64_t biases = (c.qkv_bias ? q + 2 * kv : 0) + (c.o_bias ? hidden : 0) +
                              (c.mlp_bias ? 2 * c.intermediate_size + hidden : 0);
  const std::int64_t layer = 2 * q * hidden + 2 * kv * hidden + 3 * hidden * c.intermediate_size +
                             2 * hidden + (c.qk_norm ? 2 * c.head_dim : 0) + biases;
  return c.num_hidden_layers * layer + (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * hidden +
         hidden;
}

}  // namespace tp

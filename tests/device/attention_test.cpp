// Attention over a cache: against double precision, and the same bits however tokens arrive.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/core/error.h"
#include "common/device/reference_ops.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

constexpr double kUnit = 0x1p-24;  // largest relative error of rounding to f32
constexpr std::int64_t kTokens = 21;

// Rank 1 of 3 of a model with 8 query and 2 KV heads: its query heads 2, 3, 4 read 0, 0, 1.
constexpr HeadShard kUneven{{2, 5}, {0, 2}, 4};

// Queries, keys and values of one sequence, and a cache with some room to spare.
struct Sequence {
  Sequence(const HeadShard& head_shard, std::int64_t head_width)
      : heads(head_shard),
        head_dim(head_width),
        q(random_matrix(kTokens, heads.query.size() * head_dim, 1)),
        k(random_matrix(kTokens, heads.kv.size() * head_dim, 2)),
        v(random_matrix(kTokens, heads.kv.size() * head_dim, 3)),
        keys(device->allocate({heads.kv.size(), kTokens + 4, head_dim}, DType::f32, "kv")),
        values(device->allocate({heads.kv.size(), kTokens + 4, head_dim}, DType::f32, "kv")) {}

  // Stores the tokens in pieces of the given sizes and attends after each piece.
  Matrix run(const std::vector<std::int64_t>& pieces) {
    Matrix y(kTokens, q.cols);
    std::int64_t done = 0;
    for (const std::int64_t piece : pieces) {
      const Range rows{done, done + piece};
      device->store_kv(k.view().rows_in(rows), v.view().rows_in(rows), done, cache());
      device->attention(q.view().rows_in(rows), cache(), heads, done, y.view().rows_in(rows));
      done += piece;
    }
    return y;
  }

  KvView cache() { return {keys.view(), values.view()}; }

  std::unique_ptr<Device> device = make_cpu_device();
  HeadShard heads;
  std::int64_t head_dim;
  Matrix q, k, v;
  Tensor keys, values;
};

// softmax(q K^T / sqrt(d)) V of one head of one token, in double, and a bound on the f32 error.
struct Exact {
  std::vector<double> out;
  double bound = 0;
};

Exact exact_head(const Sequence& s, std::int64_t token, std::int64_t head, std::int64_t kv_head) {
  const std::int64_t d = s.head_dim, context = token + 1;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> weights;
  double largest_magnitude = 0, largest_value = 0;
  for (std::int64_t t = 0; t < context; ++t) {
    double score = 0, magnitude = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double product = static_cast<double>(s.q(token, head * d + i)) *
                             static_cast<double>(s.k(t, kv_head * d + i)) * scale;
      score += product;
      magnitude += std::abs(product);
      largest_value =
          std::max(largest_value, std::abs(static_cast<double>(s.v(t, kv_head * d + i))));
    }
    weights.push_back(std::exp(score));
    largest_magnitude = std::max(largest_magnitude, magnitude);
  }
  Exact exact{std::vector<double>(static_cast<std::size_t>(d)), 0};
  double sum = 0;
  for (const double w : weights) sum += w;
  for (std::int64_t t = 0; t < context; ++t)
    for (std::int64_t i = 0; i < d; ++i)
      exact.out[static_cast<std::size_t>(i)] +=
          weights[static_cast<std::size_t>(t)] / sum * static_cast<double>(s.v(t, kv_head * d + i));
  // A score passes d / 16 + 4 roundings in the dot product, 3 for the scale and one when the
  // largest is subtracted, from two scores. exp turns this absolute error into a relative one of
  // the weight and adds 2. The weights are used twice, in sums of `context` terms, then divided.
  const double score = (std::ceil(static_cast<double>(d) / 16) + 8) * 2 * largest_magnitude;
  exact.bound = (2 * (score + 2 + static_cast<double>(context)) + 1) * kUnit * largest_value;
  return exact;
}

}  // namespace

TEST_CASE("attention is within its error bound of the exact result") {
  const std::int64_t head_dim = GENERATE(6, 8, 12, 32, 80);
  const HeadShard heads = GENERATE(HeadShard{{0, 2}, {0, 2}, 1},  // one KV head per query head
                                   HeadShard{{0, 8}, {0, 2}, 4},  // four query heads share one
                                   kUneven);
  Sequence s(heads, head_dim);
  const Matrix y = s.run({kTokens});
  for (std::int64_t token = 0; token < kTokens; ++token) {
    for (std::int64_t head = 0; head < heads.query.size(); ++head) {
      const std::int64_t kv_head = (heads.query.begin + head) / heads.group - heads.kv.begin;
      const Exact exact = exact_head(s, token, head, kv_head);
      for (std::int64_t i = 0; i < head_dim; ++i)
        REQUIRE(std::abs(static_cast<double>(y(token, head * head_dim + i)) -
                         exact.out[static_cast<std::size_t>(i)]) <= exact.bound);
    }
  }
}

TEST_CASE("a token does not see the tokens behind it") {
  Sequence s(kUneven, 12);
  const Matrix before = s.run({kTokens});
  for (std::int64_t c = 0; c < s.k.cols; ++c) s.k(kTokens - 1, c) = s.v(kTokens - 1, c) = 9;
  const Matrix after = s.run({kTokens});
  const Range earlier{0, kTokens - 1};
  REQUIRE(same_bits(after.rows_in(earlier).view(), before.rows_in(earlier).view()));
  REQUIRE_FALSE(same_bits(after.view(), before.view()));
}

TEST_CASE("prefill, chunked prefill and decode give the same bits") {
  Sequence s(kUneven, GENERATE(6, 8, 12, 32, 80));
  const Matrix prefill = s.run({kTokens});
  REQUIRE(same_bits(s.run({3, 1, 10, 7}).view(), prefill.view()));
  REQUIRE(same_bits(s.run(std::vector<std::int64_t>(kTokens, 1)).view(), prefill.view()));
}

TEST_CASE("attention of the CPU device has the bits of the reference") {
  Sequence s(kUneven, GENERATE(6, 8, 12, 32, 80));
  const Matrix all = s.run({kTokens});
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, kTokens - 1}) {
    const Range rows{first, kTokens};
    Matrix y(rows.size(), s.q.cols);
    reference::attention(s.q.view().rows_in(rows), s.cache(), s.heads, first, y.view());
    REQUIRE(same_bits(y.view(), all.view().rows_in(rows)));
  }
}

TEST_CASE("attention reads and writes strided rows") {
  Sequence s(kUneven, 12);
  const Matrix wanted = s.run({kTokens});
  Framed q(s.q, DType::f32), y(kTokens, s.q.cols);
  s.device->attention(q.view(), s.cache(), s.heads, 0, y.view());
  REQUIRE(same_bits(y.view(), wanted.view()));
  REQUIRE(y.intact());
}

TEST_CASE("scores far from zero do not overflow") {
  Sequence s(HeadShard{{0, 1}, {0, 1}, 1}, 8);
  for (float& value : s.q.values) value *= 1000;
  const Matrix y = s.run({kTokens});
  for (const float value : y.values) REQUIRE(std::abs(value) <= 1);
}

TEST_CASE("store_kv puts each head's tokens behind one another and nothing else") {
  Sequence s(kUneven, 6);
  const Range rows{0, 2};
  s.device->store_kv(s.k.view().rows_in(rows), s.v.view().rows_in(rows), 3, s.cache());
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t t = 0; t < kTokens + 4; ++t) {
      for (std::int64_t i = 0; i < 6; ++i) {
        const bool stored = t == 3 || t == 4;
        REQUIRE(s.keys.row<float>(head)[t * 6 + i] == (stored ? s.k(t - 3, head * 6 + i) : 0));
        REQUIRE(s.values.row<float>(head)[t * 6 + i] == (stored ? s.v(t - 3, head * 6 + i) : 0));
      }
    }
  }
}

TEST_CASE("store_kv and attention refuse positions beyond the cache") {
  Sequence s(kUneven, 6);  // room for 25 tokens
  const Range rows{0, 2};
  REQUIRE_THROWS_WITH(
      s.device->store_kv(s.k.view().rows_in(rows), s.v.view().rows_in(rows), 24, s.cache()),
      ContainsSubstring("positions 24 to 25") && ContainsSubstring("only 25"));
  REQUIRE_THROWS_WITH(
      s.device->store_kv(s.k.view().rows_in(rows), s.v.view().rows_in(rows), -1, s.cache()),
      ContainsSubstring("positions -1 to 0"));
  Matrix y(2, s.q.cols);
  REQUIRE_THROWS_WITH(
      s.device->attention(s.q.view().rows_in(rows), s.cache(), s.heads, 24, y.view()),
      ContainsSubstring("positions 24 to 25"));
}

TEST_CASE("attention refuses a shard that does not fit the cache") {
  Sequence s(kUneven, 6);
  Matrix y(kTokens, s.q.cols);
  REQUIRE_THROWS_WITH(
      s.device->attention(s.q.view(), s.cache(), HeadShard{{2, 5}, {0, 3}, 4}, 0, y.view()),
      ContainsSubstring("KV heads of the cache = 2, KV heads of the shard = 3"));
  REQUIRE_THROWS_WITH(
      s.device->attention(s.q.view(), s.cache(), HeadShard{{0, 4}, {0, 2}, 4}, 0, y.view()),
      ContainsSubstring("columns of q = 18, query heads * head_dim = 24"));
}

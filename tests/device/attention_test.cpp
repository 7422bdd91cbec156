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
  Sequence(const HeadShard& head_shard,
           std::int64_t head_width,
           std::int64_t tokens_per_block = kTokens + 4,
           std::vector<std::int32_t> block_table = {0},
           std::int64_t sliding_window = kNoWindow)
      : heads(head_shard),
        head_dim(head_width),
        q(random_matrix(kTokens, heads.query.size() * head_dim, 1)),
        k(random_matrix(kTokens, heads.kv.size() * head_dim, 2)),
        v(random_matrix(kTokens, heads.kv.size() * head_dim, 3)),
        block_size(tokens_per_block),
        window(sliding_window),
        table(std::move(block_table)),
        keys(device->allocate(pool_shape(), DType::f32, "kv")),
        values(device->allocate(pool_shape(), DType::f32, "kv")) {}

  // Stores the tokens in pieces of the given sizes and attends after each piece.
  Matrix run(const std::vector<std::int64_t>& pieces) {
    Matrix y(kTokens, q.cols);
    std::int64_t done = 0;
    for (const std::int64_t piece : pieces) {
      const Range rows{done, done + piece};
      store(rows, done);
      attend(rows, done, y.view().rows_in(rows));
      done += piece;
    }
    return y;
  }

  // The rows of k and v as the tokens first, ...
  void store(Range rows, std::int64_t first) {
    const Batch batch = batch_of(rows.size(), first);
    device->store_kv(k.view().rows_in(rows), v.view().rows_in(rows), batch.view().slot_mapping,
                     cache());
  }
  void attend(Range rows, std::int64_t first, TensorView y) {
    const Batch batch = batch_of(rows.size(), first);
    device->attention(q.view().rows_in(rows), cache(), heads, batch.view(), y, window);
  }

  KvLayer cache() { return {keys.view(), values.view()}; }
  Batch batch_of(std::int64_t tokens, std::int64_t first) const {
    Batch batch(block_size);
    batch.add(table, first, tokens);
    return batch;
  }
  Shape pool_shape() const {
    const std::int32_t last = *std::max_element(table.begin(), table.end());
    return {last + 1, heads.kv.size(), block_size, head_dim};
  }

  std::unique_ptr<Device> device = make_cpu_device();
  HeadShard heads;
  std::int64_t head_dim;
  Matrix q, k, v;
  std::int64_t block_size;
  std::int64_t window;
  std::vector<std::int32_t> table;
  Tensor keys, values;
};

// softmax(q K^T / sqrt(d)) V of one head of one token, in double, and a bound on the f32 error.
struct Exact {
  std::vector<double> out;
  double bound = 0;
};

Exact exact_head(const Sequence& s, std::int64_t token, std::int64_t head, std::int64_t kv_head) {
  const std::int64_t d = s.head_dim;
  const std::int64_t first =
      s.window == kNoWindow ? 0 : std::max<std::int64_t>(0, token + 1 - s.window);
  const std::int64_t context = token + 1 - first;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> weights;
  double largest_magnitude = 0, largest_value = 0;
  for (std::int64_t t = first; t <= token; ++t) {
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
  for (std::int64_t t = first; t <= token; ++t)
    for (std::int64_t i = 0; i < d; ++i)
      exact.out[static_cast<std::size_t>(i)] += weights[static_cast<std::size_t>(t - first)] / sum *
                                                static_cast<double>(s.v(t, kv_head * d + i));
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
  const std::int64_t window = GENERATE(as<std::int64_t>{}, kNoWindow, 1, 5, 20, 21, 22);
  Sequence s(heads, head_dim, 4, {7, 0, 3, 9, 2, 5}, window);
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

TEST_CASE("a window as long as the context is none") {
  Sequence all(kUneven, 12), wide(kUneven, 12, 4, {7, 0, 3, 9, 2, 5}, kTokens);
  REQUIRE(same_bits(wide.run({kTokens}).view(), all.run({kTokens}).view()));
}

TEST_CASE("tokens before the window are not read") {
  // Blocks of 4 and a window of 6: the last token, at 20, sees 15 to 20; block 3 begins with 12.
  Sequence s(kUneven, 12, 4, {7, 0, 3, 9, 2, 5}, 6);
  const Matrix wanted = s.run({kTokens});
  for (std::int64_t t = 0; t < 15; ++t) {
    const std::int64_t block = s.table[static_cast<std::size_t>(t / 4)];
    for (std::int64_t head = 0; head < 2; ++head)
      for (std::int64_t i = 0; i < 12; ++i)
        s.keys.row<float>(block)[(head * 4 + t % 4) * 12 + i] =
            s.values.row<float>(block)[(head * 4 + t % 4) * 12 + i] = NAN;
  }
  const Range last{kTokens - 1, kTokens};
  Matrix y(1, s.q.cols), plain(1, s.q.cols);
  s.attend(last, kTokens - 1, y.view());
  REQUIRE(same_bits(y.view(), wanted.view().rows_in(last)));
  const Batch batch = s.batch_of(1, kTokens - 1);
  reference::attention(s.q.view().rows_in(last), s.cache(), s.heads, batch.view(), plain.view(), 6);
  REQUIRE(same_bits(plain.view(), y.view()));
  s.attend({kTokens - 2, kTokens - 1}, kTokens - 2, y.view());  // sees one of them
  REQUIRE(std::isnan(y(0, 0)));
}

TEST_CASE("prefill, chunked prefill and decode give the same bits") {
  const std::int64_t window = GENERATE(as<std::int64_t>{}, kNoWindow, 1, 6, 20);
  Sequence s(kUneven, GENERATE(6, 8, 12, 32, 80), 4, {7, 0, 3, 9, 2, 5}, window);
  const Matrix prefill = s.run({kTokens});
  REQUIRE(same_bits(s.run({3, 1, 10, 7}).view(), prefill.view()));
  REQUIRE(same_bits(s.run(std::vector<std::int64_t>(kTokens, 1)).view(), prefill.view()));
}

TEST_CASE("attention of the CPU device has the bits of the reference") {
  const std::int64_t head_dim = GENERATE(6, 8, 12, 32, 80);
  const std::int64_t window = GENERATE(as<std::int64_t>{}, kNoWindow, 1, 6, 20);
  Sequence s = GENERATE(false, true) ? Sequence(kUneven, head_dim, kTokens + 4, {0}, window)
                                     : Sequence(kUneven, head_dim, 4, {7, 0, 3, 9, 2, 5}, window);
  const Matrix all = s.run({kTokens});
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, kTokens - 1}) {
    const Range rows{first, kTokens};
    Matrix y(rows.size(), s.q.cols);
    const Batch batch = s.batch_of(rows.size(), first);
    reference::attention(s.q.view().rows_in(rows), s.cache(), s.heads, batch.view(), y.view(),
                         window);
    REQUIRE(same_bits(y.view(), all.view().rows_in(rows)));
  }
}

TEST_CASE("attention reads and writes strided rows") {
  Sequence s(kUneven, 12);
  const Matrix wanted = s.run({kTokens});
  Framed q(s.q, DType::f32), y(kTokens, s.q.cols);
  const Batch batch = s.batch_of(kTokens, 0);
  s.device->attention(q.view(), s.cache(), s.heads, batch.view(), y.view());
  REQUIRE(same_bits(y.view(), wanted.view()));
  REQUIRE(y.intact());
}

TEST_CASE("scores far from zero do not overflow") {
  Sequence s(HeadShard{{0, 1}, {0, 1}, 1}, 8);
  for (float& value : s.q.values) value *= 1000;
  const Matrix y = s.run({kTokens});
  for (const float value : y.values) REQUIRE(std::abs(value) <= 1);
}

TEST_CASE("attention over scattered blocks has the bits of attention over one block") {
  const std::int64_t head_dim = GENERATE(6, 12, 32);
  const std::int64_t window = GENERATE(as<std::int64_t>{}, kNoWindow, 7);
  Sequence contiguous(kUneven, head_dim, kTokens + 4, {0}, window);
  const Matrix wanted = contiguous.run({kTokens});
  const std::int64_t block_size = GENERATE(1, 4, 5, 16);
  std::vector<std::int32_t> table;  // every second block, from the back
  for (std::int64_t i = blocks_for(kTokens, block_size); i > 0; --i)
    table.push_back(static_cast<std::int32_t>(2 * i - 1));
  Sequence paged(kUneven, head_dim, block_size, table, window);
  REQUIRE(same_bits(paged.run({kTokens}).view(), wanted.view()));
  REQUIRE(same_bits(paged.run({3, 1, 10, 7}).view(), wanted.view()));
}

TEST_CASE("sequences of one batch do not see each other") {
  Sequence a(kUneven, 12, 4, {5, 0, 3, 9, 2, 8}), b(kUneven, 12, 4, {1, 7, 4});
  for (float& value : b.q.values) value = -value;
  for (float& value : b.k.values) value += 1;
  const Matrix wanted_a = a.run({kTokens}), wanted_b = b.run({9, 2});
  // The same tokens in one cache: 10 of a, then the other 11 of a beside 9 of b, then 2 of b.
  a.run({10});
  const Range late{10, kTokens}, all_b{0, 9};
  Batch batch(4);
  batch.add(a.table, 10, 11);
  batch.add(b.table, 0, 9);
  const auto both = [&](const Matrix& of_a, const Matrix& of_b) {
    Matrix rows(20, of_a.cols);
    copy_host(of_a.view().rows_in(late), rows.view().rows_in({0, 11}));
    copy_host(of_b.view().rows_in(all_b), rows.view().rows_in({11, 20}));
    return rows;
  };
  const Matrix q = both(a.q, b.q), k = both(a.k, b.k), v = both(a.v, b.v);
  Matrix y(20, q.cols);
  a.device->store_kv(k.view(), v.view(), batch.view().slot_mapping, a.cache());
  a.device->attention(q.view(), a.cache(), a.heads, batch.view(), y.view());
  REQUIRE(same_bits(y.view().rows_in({0, 11}), wanted_a.view().rows_in(late)));
  REQUIRE(same_bits(y.view().rows_in({11, 20}), wanted_b.view().rows_in(all_b)));
}

TEST_CASE("store_kv puts each head of a token into the token's slot and nothing elsewhere") {
  Sequence s(kUneven, 6, 4, {2, 0});
  s.store({0, 2}, 3);  // the last place of block 2, the first of block 0
  for (std::int64_t block = 0; block < 3; ++block) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t place = 0; place < 4; ++place) {
        const std::int64_t token = block == 2 && place == 3 ? 0 : block == 0 && place == 0 ? 1 : -1;
        for (std::int64_t i = 0; i < 6; ++i) {
          const std::int64_t at = (head * 4 + place) * 6 + i;
          REQUIRE(s.keys.row<float>(block)[at] == (token < 0 ? 0 : s.k(token, head * 6 + i)));
          REQUIRE(s.values.row<float>(block)[at] == (token < 0 ? 0 : s.v(token, head * 6 + i)));
        }
      }
    }
  }
}

TEST_CASE("store_kv and attention refuse what is not in the cache") {
  Sequence s(kUneven, 6, 4, {2, 0});  // 3 blocks of 4 tokens
  const auto k = s.k.view().rows_in({0, 2}), q = s.q.view().rows_in({0, 2});
  Matrix y(2, s.q.cols);
  for (const std::int32_t slot : {-1, 12}) {
    const std::vector<std::int32_t> slots{0, slot};
    REQUIRE_THROWS_WITH(s.device->store_kv(k, k, slots, s.cache()),
                        ContainsSubstring("slot " + std::to_string(slot) + " is not in 0 to 11"));
  }
  const std::vector<std::int32_t> one_slot{0};
  REQUIRE_THROWS_WITH(s.device->store_kv(k, k, one_slot, s.cache()),
                      ContainsSubstring("rows of keys = 2, slots = 1"));

  const auto attend = [&](std::vector<SequenceRows> sequences) {
    const std::vector<std::int32_t> unused(2);
    s.device->attention(q, s.cache(), s.heads, {unused, unused, sequences}, y.view());
  };
  const std::vector<std::int32_t> foreign{2, 3};
  REQUIRE_THROWS_WITH(attend({{{0, 2}, 7, s.table}}),
                      ContainsSubstring("9 tokens need 3 blocks, but the block table has 2"));
  REQUIRE_THROWS_WITH(attend({{{0, 2}, 0, foreign}}),
                      ContainsSubstring("block 3 is not in 0 to 2"));
  REQUIRE_THROWS_WITH(attend({{{0, 1}, 0, s.table}}), ContainsSubstring("rows of q = 2"));
  REQUIRE_THROWS_WITH(attend({{{1, 2}, 0, s.table}}), ContainsSubstring("first row of a sequence"));
}

TEST_CASE("attention refuses a shard that does not fit the cache") {
  Sequence s(kUneven, 6);
  Matrix y(kTokens, s.q.cols);
  const Batch batch = s.batch_of(kTokens, 0);
  REQUIRE_THROWS_WITH(s.device->attention(s.q.view(), s.cache(), HeadShard{{2, 5}, {0, 3}, 4},
                                          batch.view(), y.view()),
                      ContainsSubstring("KV heads of the cache = 2, KV heads of the shard = 3"));
  REQUIRE_THROWS_WITH(
      s.device->attention(s.q.view(), s.cache(), kUneven, batch.view(), y.view(), -1),
      ContainsSubstring("a window of -1 tokens"));
  REQUIRE_THROWS_WITH(s.device->attention(s.q.view(), s.cache(), HeadShard{{0, 4}, {0, 2}, 4},
                                          batch.view(), y.view()),
                      ContainsSubstring("columns of q = 18, query heads * head_dim = 24"));
}

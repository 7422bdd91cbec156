// Decode and prefill attention on the GPU against double precision: head sizes, dtypes, groups of
// query heads, uneven shards, windows, chunks, sequences of different length in one launch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/core/error.h"
#include "common/device/batch.h"
#include "common/device/cuda/decode_attention.h"
#include "common/device/cuda/prefill_attention.h"
#include "tests/catch.h"
#include "tests/device/cuda/device_memory.h"

using namespace tp;
using namespace tp::cuda;

namespace {

constexpr double kUnit = 0x1p-24;  // largest relative error of rounding to f32
constexpr DType kStorage[] = {DType::f32, DType::bf16, DType::f16};
constexpr float kUntouched = -7;  // in rows of y that have yet to be written

struct NewRows {
  std::int64_t first_position;
  std::int64_t rows;
};

// What to compute; the default is a small case with everything in it.
struct Case {
  std::int64_t head_dim = 16;
  DType dtype = DType::bf16;
  HeadShard heads{{0, 8}, {0, 2}, 4};
  std::vector<NewRows> sequences{};
  std::int64_t window = 0;
  std::int64_t block_size = 16;
  Layout layout = Layout::strided;
  std::int64_t splits = 1;
};

// A cache with the keys and values of all sequences, in blocks that are dealt out of order. Where
// no token lies there is NaN, and so there is for tokens that no row may see.
class Attention {
 public:
  Attention(const TestStream& stream, const Case& c)
      : case_(c), block_elements_(c.heads.kv.size() * c.block_size * c.head_dim) {
    std::int64_t rows = 1, blocks = 0;  // row 0 belongs to no sequence
    for (const NewRows& s : c.sequences) {
      const std::int64_t tokens = s.first_position + s.rows;
      sequences_.push_back({static_cast<std::int32_t>(rows), static_cast<std::int32_t>(s.rows),
                            static_cast<std::int32_t>(s.first_position),
                            static_cast<std::int32_t>(tables_.size())});
      for (std::int64_t b = 0; b < blocks_for(tokens, c.block_size); ++b, ++blocks)
        tables_.push_back(static_cast<std::int32_t>(blocks));
      rows += s.rows + 1;  // and neither does the row behind a sequence
    }
    std::reverse(tables_.begin(), tables_.end());
    q_ = random_matrix(rows, c.heads.query.size() * c.head_dim, 1);
    keys_ = pool(blocks + 1, 2);
    values_ = pool(blocks + 1, 3);

    const DeviceMatrix q(stream, q_, DType::f32, c.layout);
    Matrix untouched(rows, q_.cols);
    std::fill(untouched.values.begin(), untouched.values.end(), kUntouched);
    const DeviceMatrix y(stream, untouched, DType::f32, c.layout);
    const DeviceMatrix keys(stream, keys_, c.dtype, c.layout);
    const DeviceMatrix values(stream, values_, c.dtype, c.layout);
    const auto element_bytes = static_cast<std::int64_t>(size_of(c.dtype));
    wide_ = reinterpret_cast<std::uintptr_t>(keys.data()) % 16 == 0 &&
            keys.rows().stride * element_bytes % 16 == 0 && c.head_dim * element_bytes % 16 == 0;
    const DeviceArray<DeviceSequence> sequences(stream, sequences_);
    const DeviceArray<std::int32_t> tables(stream, tables_);
    const PagedKv cache = {keys.data(),       values.data(), c.dtype,   keys.rows().stride,
                           c.heads.kv.size(), c.block_size,  c.head_dim};
    const DeviceSequences described = {sequences.data(), tables.data()};
    const bool decode = std::all_of(c.sequences.begin(), c.sequences.end(),
                                    [](const NewRows& s) { return s.rows <= 1; });
    const auto count = static_cast<std::int64_t>(sequences_.size());
    const std::int64_t workspace_bytes =
        decode_workspace_bytes(count, c.heads.query.size(), c.head_dim, c.splits);
    const DeviceArray<std::byte> workspace(
        stream, std::vector<std::byte>(static_cast<std::size_t>(workspace_bytes)));
    std::vector<PrefillTile> listed;
    for (std::size_t s = 0; s < sequences_.size(); ++s)
      for (std::int64_t row = 0; row < sequences_[s].rows; row += kPrefillTileRows)
        listed.push_back({static_cast<std::int32_t>(s), static_cast<std::int32_t>(row)});
    const DeviceArray<PrefillTile> tiles(stream, listed);

    if (decode) {
      decode_attention({q.rows(), cache, c.heads, described, count, c.window, c.splits,
                        workspace.data(), y.rows()},
                       stream);
      decoded_ = y.values();
    }
    const DeviceMatrix y_prefill(stream, untouched, DType::f32, c.layout);
    prefill_attention({q.rows(), cache, c.heads, described, tiles.data(),
                       static_cast<std::int64_t>(listed.size()), c.window, y_prefill.rows()},
                      stream);
    prefilled_ = y_prefill.values();
  }

  // The largest error of any result, as a part of what it may be; NaN if a result is.
  double worst() const {
    double largest = worst_of(prefilled_);
    if (decoded_.rows == 0) return largest;
    const double decode = worst_of(decoded_);
    return decode <= largest ? largest : decode;
  }
  // Whether the kernels can read the cache 16 bytes at a time.
  bool wide() const { return wide_; }

 private:
  // Random keys or values, rounded to the dtype, in the places of the tokens that are seen.
  Matrix pool(std::int64_t blocks, std::uint64_t seed) const {
    Matrix m(blocks, block_elements_);
    std::fill(m.values.begin(), m.values.end(), std::numeric_limits<float>::quiet_NaN());
    const Matrix random = rounded(random_matrix(blocks, block_elements_, seed), case_.dtype);
    for (const DeviceSequence& s : sequences_) {
      if (s.rows == 0) continue;
      const Range seen = {attended_positions(s.first_position, case_.window).begin,
                          s.first_position + s.rows};
      for (std::int64_t t = seen.begin; t < seen.end; ++t)
        for (std::int64_t head = 0; head < case_.heads.kv.size(); ++head)
          for (std::int64_t i = 0; i < case_.head_dim; ++i) {
            const auto [block, at] = place(s, t, head, i);
            m(block, at) = random(block, at);
          }
    }
    return m;
  }

  std::pair<std::int64_t, std::int64_t> place(const DeviceSequence& s,
                                              std::int64_t token,
                                              std::int64_t head,
                                              std::int64_t i) const {
    const auto entry = static_cast<std::size_t>(s.table_begin + token / case_.block_size);
    return {tables_[entry],
            (head * case_.block_size + token % case_.block_size) * case_.head_dim + i};
  }

  double worst_of(const Matrix& y) const {
    double largest = 0;
    std::vector<bool> served(static_cast<std::size_t>(y.rows));
    for (const DeviceSequence& s : sequences_)
      for (std::int64_t row = 0; row < s.rows; ++row) {
        served[static_cast<std::size_t>(s.row + row)] = true;
        for (std::int64_t head = 0; head < case_.heads.query.size(); ++head) {
          const double error = error_of(y, s, row, head);
          if (!(error <= largest)) largest = error;
        }
      }
    for (std::int64_t r = 0; r < y.rows; ++r)  // the others are as they were
      for (std::int64_t c = 0; c < y.cols && !served[static_cast<std::size_t>(r)]; ++c)
        REQUIRE(y(r, c) == kUntouched);
    return largest;
  }

  // The error of one head of one row, as a part of its bound.
  double error_of(const Matrix& y,
                  const DeviceSequence& s,
                  std::int64_t row,
                  std::int64_t head) const {
    const std::int64_t d = case_.head_dim;
    const std::int64_t kv_head = case_.heads.kv_local(head);
    const Range seen = attended_positions(s.first_position + row, case_.window);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    std::vector<double> weights, out(static_cast<std::size_t>(d));
    double largest_magnitude = 0, largest_value = 0, total = 0;
    for (std::int64_t t = seen.begin; t < seen.end; ++t) {
      double score = 0, magnitude = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        const auto [block, at] = place(s, t, kv_head, i);
        const double product = static_cast<double>(q_(s.row + row, head * d + i)) *
                               static_cast<double>(keys_(block, at)) * scale;
        score += product;
        magnitude += std::abs(product);
        largest_value = std::max(largest_value, std::abs(static_cast<double>(values_(block, at))));
      }
      weights.push_back(std::exp(score));
      total += weights.back();
      largest_magnitude = std::max(largest_magnitude, magnitude);
    }
    for (std::int64_t t = seen.begin; t < seen.end; ++t)
      for (std::int64_t i = 0; i < d; ++i) {
        const auto [block, at] = place(s, t, kv_head, i);
        out[static_cast<std::size_t>(i)] += weights[static_cast<std::size_t>(t - seen.begin)] /
                                            total * static_cast<double>(values_(block, at));
      }
    // A score passes head_dim roundings at most, 4 for scale, log2(e) and their product with q, and
    // one when the largest is subtracted, from two scores. exp2 makes a relative error of this
    // absolute one, and adds 2 units; weights are used twice, in sums of `context` terms with a
    // correction per tile or split, which are divided.
    const auto context = static_cast<double>(seen.size());
    const double score_error = (static_cast<double>(d) + 6) * largest_magnitude;
    const double bound = kUnit * largest_value * (2 * (score_error + 2) + 2 * context + 16);
    double largest = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double error = std::abs(static_cast<double>(y(s.row + row, head * d + i)) -
                                    out[static_cast<std::size_t>(i)]) /
                           bound;
      if (!(error <= largest)) largest = error;
    }
    return largest;
  }

  Case case_;
  std::int64_t block_elements_;
  bool wide_ = false;
  std::vector<DeviceSequence> sequences_;
  std::vector<std::int32_t> tables_;
  Matrix q_, keys_, values_, decoded_{}, prefilled_{};
};

// Sequences with one new token each, at these positions.
std::vector<NewRows> decode_at(const std::vector<std::int64_t>& positions) {
  std::vector<NewRows> sequences;
  for (const std::int64_t position : positions) sequences.push_back({position, 1});
  return sequences;
}

// Contexts of 1, 31, 32, 33 and 257 tokens.
const std::vector<std::int64_t> kPositions{0, 30, 31, 32, 256};

}  // namespace

TEST_CASE("CUDA attention with every head_dim and dtype by wide and by scalar accesses") {
  const TestStream stream;
  std::set<bool> wide;
  for (const std::int64_t head_dim : {6, 8, 10, 12, 16, 32, 64, 80, 96, 128, 256})
    for (const DType dtype : kStorage)
      for (const Layout layout : {Layout::strided, Layout::odd}) {
        CAPTURE(head_dim, static_cast<int>(dtype), static_cast<int>(layout));
        const HeadShard heads{{0, 2}, {0, 1}, 2};
        Case c = {head_dim, dtype, heads, decode_at({0, 32, 70})};
        c.layout = layout;
        const Attention decode(stream, c);
        wide.insert(decode.wide());
        REQUIRE(decode.worst() <= 1);
        c.splits = 3;
        REQUIRE(Attention(stream, c).worst() <= 1);
        c.sequences = {{0, 5}, {0, 33}, {20, 9}};
        REQUIRE(Attention(stream, c).worst() <= 1);
      }
  REQUIRE(wide == std::set<bool>{false, true});
}

TEST_CASE("CUDA attention with groups of 1 to 33 query heads for each KV head") {
  const TestStream stream;
  for (const std::int64_t group : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33}) {
    CAPTURE(group);
    const HeadShard heads{{0, 2 * group}, {0, 2}, group};
    Case c = {16, DType::bf16, heads, decode_at({0, 40, 100})};
    REQUIRE(Attention(stream, c).worst() <= 1);
    c.splits = 4;
    REQUIRE(Attention(stream, c).worst() <= 1);
    c.sequences = {{3, 7}};
    REQUIRE(Attention(stream, c).worst() <= 1);
  }
}

TEST_CASE("CUDA attention of uneven and replicated shards") {
  const TestStream stream;
  // 8 query and 2 KV heads over 3 ranks; 8 over 5 of 6; one head of a group; the middle of a group.
  const std::vector<HeadShard> shards{{{2, 5}, {0, 2}, 4},  {{5, 8}, {1, 2}, 4},
                                      {{0, 2}, {0, 1}, 4},  {{7, 8}, {1, 2}, 4},
                                      {{5, 11}, {0, 2}, 8}, {{3, 23}, {0, 4}, 6}};
  for (const HeadShard& heads : shards) {
    CAPTURE(heads.query.begin, heads.query.end);
    for (const std::int64_t splits : {1, 2}) {
      Case c = {12, DType::f32, heads, decode_at({0, 7, 77})};
      c.splits = splits;
      REQUIRE(Attention(stream, c).worst() <= 1);
      c.sequences = {{0, 9}, {11, 2}};
      REQUIRE(Attention(stream, c).worst() <= 1);
    }
  }
}

TEST_CASE("CUDA decode attention over contexts around a warp with any number of splits") {
  const TestStream stream;
  for (const std::int64_t splits : {1, 3, 40})
    for (const std::int64_t block_size : {1, 5, 256}) {
      CAPTURE(splits, block_size);
      Case c = {64, DType::f16, {{0, 4}, {0, 1}, 4}, decode_at(kPositions)};
      c.splits = splits;
      c.block_size = block_size;
      REQUIRE(Attention(stream, c).worst() <= 1);
    }
}

TEST_CASE("CUDA attention with a sliding window reads no token outside of it") {
  const TestStream stream;
  for (const std::int64_t window : {1, 2, 31, 33, 64, 256, 257, 1000}) {
    CAPTURE(window);
    Case c = {32, DType::bf16, {{0, 4}, {0, 2}, 2}, decode_at(kPositions)};
    c.window = window;
    REQUIRE(Attention(stream, c).worst() <= 1);
    c.splits = 3;
    REQUIRE(Attention(stream, c).worst() <= 1);
    c.sequences = {{0, 70}, {100, 40}, {64, 1}};
    REQUIRE(Attention(stream, c).worst() <= 1);
  }
}

TEST_CASE("CUDA prefill attention of several sequences chunked over tile edges") {
  const TestStream stream;
  for (const std::int64_t head_dim : {16, 128, 256}) {
    CAPTURE(head_dim);
    Case c = {head_dim, DType::bf16, {{0, 2}, {0, 1}, 2}, {{0, 1}, {0, 31}, {5, 32}, {63, 33}}};
    REQUIRE(Attention(stream, c).worst() <= 1);
    c.sequences = {{0, 64}, {64, 65}, {257, 2}, {0, 130}};
    REQUIRE(Attention(stream, c).worst() <= 1);
  }
}

TEST_CASE("CUDA attention leaves out sequences without rows and does nothing without any") {
  const TestStream stream;
  Case c;
  c.sequences = {{9, 1}, {4, 0}, {20, 1}, {0, 0}};
  for (const std::int64_t splits : {1, 3}) {
    c.splits = splits;
    REQUIRE(Attention(stream, c).worst() <= 1);
  }
  c.sequences = {};
  REQUIRE(Attention(stream, c).worst() == 0);
}

TEST_CASE("CUDA attention refuses heads that are too large") {
  const TestStream stream;
  DecodeAttention decode;
  decode.cache.head_dim = 264;
  REQUIRE_THROWS_WITH(decode_attention(decode, stream), ContainsSubstring("head_dim is above 256"));
  PrefillAttention prefill;
  prefill.cache.head_dim = 264;
  REQUIRE_THROWS_WITH(prefill_attention(prefill, stream),
                      ContainsSubstring("head_dim is above 256"));
}

TEST_CASE("CUDA decode_splits fills the GPU but not with crumbs") {
  REQUIRE(decode_splits(1, 8, 8192, 132) == 99);  // 792 blocks: 6 for each multiprocessor
  REQUIRE(decode_splits(1, 8, 1000, 132) == 15);  // not below 64 tokens
  REQUIRE(decode_splits(1, 8, 63, 132) == 1);
  REQUIRE(decode_splits(32, 8, 8192, 132) == 4);
  REQUIRE(decode_splits(128, 8, 8192, 132) == 1);
  REQUIRE(decode_splits(0, 8, 8192, 132) >= 1);
  REQUIRE(decode_workspace_bytes(2, 8, 64, 1) == 0);
  REQUIRE(decode_workspace_bytes(2, 8, 64, 3) == 2 * 8 * 3 * 66 * 4);
}

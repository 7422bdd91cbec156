// Keys and values in blocks, and attention over them, of the GPU device against the CPU device: all
// head sizes and dtypes, groups of query heads, uneven shards, windows, and batches in which some
// sequences begin, some go on with a part of their prompt, and some decode.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/device/batch.h"
#include "common/device/rope_table.h"
#include "tests/catch.h"
#include "tests/device/cuda/on_both.h"

using namespace tp;

namespace {

constexpr std::int64_t kPositions = 400;

// New tokens of a sequence; those before are in the cache.
struct NewTokens {
  std::int64_t first_position, rows;
};

struct Case {
  std::int64_t head_dim = 16;
  DType dtype = DType::bf16;
  HeadShard heads{{0, 4}, {0, 2}, 2};
  std::vector<NewTokens> sequences{};
  std::int64_t window = kNoWindow;
  std::int64_t block_size = 16;
  Layout layout = Layout::packed;
};

// What lies in the cache where no token was put. Whoever reads it finds other sums.
constexpr float kNobody = 1000;

// One layer's cache on both devices, f32 on the CPU, and a batch of sequences whose blocks are dealt from the back.
class Paged {
 public:
  explicit Paged(const Case& c) : case_(c), batch_(c.block_size), old_(c.block_size) {
    std::int64_t blocks = 1;  // the first is nobody's
    for (const NewTokens& s : c.sequences) {
      blocks += blocks_for(s.first_position + s.rows, c.block_size);
      rows_ += s.rows;
      old_rows_ += s.first_position;
      longest_ = std::max(longest_, s.first_position + s.rows);
    }
    std::int64_t next = blocks;
    for (const NewTokens& s : c.sequences) {
      std::vector<std::int32_t>& table = tables_.emplace_back();
      for (std::int64_t b = 0; b < blocks_for(s.first_position + s.rows, c.block_size); ++b)
        table.push_back(static_cast<std::int32_t>(--next));
    }
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      batch_.add(tables_[i], c.sequences[i].first_position, c.sequences[i].rows);
      old_.add(tables_[i], 0, c.sequences[i].first_position);
    }
    const Matrix empty = filled(blocks, kv_columns() * c.block_size, kNobody);
    keys_ = OnBoth::wide_on_cpu(empty, c.dtype), values_ = OnBoth::wide_on_cpu(empty, c.dtype);
  }

  // Stores what was before, then rotates, stores and attends. The last starts from the same numbers
  // on both devices.
  void run(bool announced) {
    store_old();
    OnBoth q = activations(rows_, q_columns(), 1), k = activations(rows_, kv_columns(), 2),
           v = activations(rows_, kv_columns(), 3);
    OnBoth y(rows_, q_columns(), case_.layout);
    Device &gpu = *devices().gpu, &cpu = *devices().cpu;
    const RopeTable of_gpu(gpu, kPositions, case_.head_dim, 10000);
    const RopeTable of_cpu(cpu, kPositions, case_.head_dim, 10000);
    const BatchView batch = batch_.view();
    if (announced) gpu.begin_step(batch, {}, {});
    gpu.rope_and_store_kv(q.gpu(), k.gpu(), v.gpu(), of_gpu, batch, cache(&OnBoth::gpu));
    cpu.rope_and_store_kv(q.cpu(), k.cpu(), v.cpu(), of_cpu, batch, cache(&OnBoth::cpu));
    round_cpu();
    REQUIRE_CLOSE(q, kRotated);
    REQUIRE_CLOSE(k, kRotated);
    // Keys that differ by a few eps, below 2, may be rounded to neighbours.
    REQUIRE_CLOSE(*keys_,
                  kRotated + (case_.dtype == DType::f32 ? 0 : 4 * rounding_of(case_.dtype)));
    REQUIRE_CLOSE(*values_, 0);
    for (OnBoth* x : {&q, &*keys_}) x->copy_to_gpu();
    const std::int64_t window = case_.window;
    gpu.attention(q.gpu(), cache(&OnBoth::gpu), case_.heads, batch, y.gpu(), window);
    cpu.attention(q.cpu(), cache(&OnBoth::cpu), case_.heads, batch, y.cpu(), window);
    REQUIRE_CLOSE(y, attention_bound());
  }

 private:
  static constexpr double kRotated = 4 * kEps;  // two products and a sum, which may be fused

  std::int64_t kv_columns() const { return case_.heads.kv.size() * case_.head_dim; }
  std::int64_t q_columns() const { return case_.heads.query.size() * case_.head_dim; }
  OnBoth activations(std::int64_t rows, std::int64_t cols, std::uint64_t seed) const {
    return OnBoth(random_matrix(rows, cols, seed), DType::f32, case_.layout);
  }
  KvLayer cache(TensorView (OnBoth::*where)()) {
    const auto paged = [&](OnBoth& pool) {
      TensorView view = (pool.*where)();
      view.shape = {view.rows(), case_.heads.kv.size(), case_.block_size, case_.head_dim};
      return view;
    };
    return {paged(*keys_), paged(*values_)};
  }

  void store_old() {
    OnBoth k = activations(old_rows_, kv_columns(), 4), v = activations(old_rows_, kv_columns(), 5);
    const auto slots = old_.view().slot_mapping;
    devices().gpu->store_kv(k.gpu(), v.gpu(), slots, cache(&OnBoth::gpu));
    devices().cpu->store_kv(k.cpu(), v.cpu(), slots, cache(&OnBoth::cpu));
    round_cpu();
    REQUIRE_CLOSE(*keys_, 0);
    REQUIRE_CLOSE(*values_, 0);
    REQUIRE_CLOSE(k, 0);  // is only read
  }

  void round_cpu() {
    for (OnBoth* pool : {&*keys_, &*values_}) pool->round_cpu();
  }

  // The products of a score add up to at most |q| |k| / sqrt(head_dim) <= sqrt(head_dim). Both
  // devices have head_dim roundings of half an eps, and a few for the scale and the exponential.
  // A weight, e^score / sum, has twice the error of a score; the sum of the weights and that of the
  // weighted values, which are below 1, have as many terms as tokens are seen.
  double attention_bound() const {
    const auto width = static_cast<double>(case_.head_dim);
    const std::int64_t seen =
        case_.window == kNoWindow ? longest_ : std::min(longest_, case_.window);
    const double score_error = (width + 8) * std::sqrt(width) * kEps;
    return 2 * score_error + (2 * static_cast<double>(seen) + 8) * kEps;
  }

  Case case_;
  std::int64_t rows_ = 0, old_rows_ = 0, longest_ = 0;
  std::vector<std::vector<std::int32_t>> tables_;
  Batch batch_, old_;
  std::optional<OnBoth> keys_, values_;
};

// Prompts that begin, prompts that go on, and sequences with one new token.
const std::vector<NewTokens> kMixed{{0, 5}, {20, 1}, {7, 9}, {0, 1}, {33, 1}, {31, 2}, {0, 66}};

}  // namespace

TEST_CASE("the GPU attends as the CPU does for all head sizes and dtypes") {
  for (const std::int64_t head_dim : {6, 8, 10, 12, 16, 32, 64, 80, 96, 128})
    for (const DType dtype : kStorage) {
      const Layout layout = head_dim % 3 == 0   ? Layout::odd
                            : head_dim % 5 == 0 ? Layout::columns
                                                : Layout::packed;
      INFO("head_dim " << head_dim << " " << name_of(dtype));
      Paged({.head_dim = head_dim,
             .dtype = dtype,
             .heads = {{2, 5}, {0, 2}, 4},
             .sequences = {{0, 18}, {40, 1}, {17, 5}, {0, 1}},
             .layout = layout})
          .run(head_dim % 4 == 0);
    }
}

TEST_CASE("the GPU attends as the CPU does for all groups of query heads") {
  for (const DType dtype : kStorage) {
    for (std::int64_t group = 1; group <= 16; ++group) {
      INFO("group " << group << " " << name_of(dtype));
      Paged({.head_dim = 8,
             .dtype = dtype,
             .heads = {{0, 2 * group}, {0, 2}, group},
             .sequences = {{0, 3}, {19, 1}}})
          .run(true);
    }
    // Shards that begin or end inside a group, that hold one head of a group, or none at all.
    for (const HeadShard& heads :
         {HeadShard{{5, 8}, {1, 2}, 4}, HeadShard{{3, 9}, {0, 3}, 4}, HeadShard{{6, 7}, {2, 3}, 3},
          HeadShard{{1, 20}, {0, 2}, 16}, HeadShard{{2, 2}, {0, 0}, 4}}) {
      INFO("query heads " << heads.query.begin << " to " << heads.query.end);
      Paged({.dtype = dtype, .heads = heads, .sequences = kMixed}).run(false);
    }
  }
}

TEST_CASE("the GPU attends as the CPU does in mixed batches") {
  for (const std::int64_t block_size : {1, 5, 16, 64})
    for (const std::int64_t window :
         {kNoWindow, std::int64_t{1}, std::int64_t{7}, std::int64_t{40}})
      for (const bool announced : {false, true}) {
        INFO("block_size " << block_size << ", window " << window);
        Paged({.sequences = kMixed, .window = window, .block_size = block_size}).run(announced);
      }
}

TEST_CASE("the GPU attends as the CPU does at sizes around those of tiles and splits") {
  for (const Layout layout : kLayouts)
    for (const std::int64_t tokens : {1, 31, 32, 33, 63, 64, 65, 128, 257}) {
      INFO(tokens << " tokens, layout " << static_cast<int>(layout));
      const HeadShard one_head{{0, 1}, {0, 1}, 1};
      Paged({.heads = one_head, .sequences = {{0, tokens}}, .layout = layout}).run(true);
      Paged({.heads = one_head,
             .sequences = {{tokens - 1, 1}, {2 * (tokens / 2), 1}},
             .window = tokens / 2,
             .layout = layout})
          .run(true);
    }
}

TEST_CASE("the GPU has nothing to do for an empty batch") {
  Paged({.sequences = {}}).run(false);
  Paged({.sequences = {}}).run(true);
}

// More integers than fit a ring of 2^18: the slots must not take the place of the positions.
TEST_CASE("integers of one operation that are not announced do not overwrite each other") {
  constexpr std::int64_t kRows = 140'000;
  std::vector<std::int32_t> positions(kRows), slots(kRows);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    positions[i] = static_cast<std::int32_t>(i % 17);
    slots[i] = static_cast<std::int32_t>(kRows - 1) - static_cast<std::int32_t>(i);
  }
  OnBoth q(random_matrix(kRows, 2, 1)), k(random_matrix(kRows, 2, 2)),
      v(random_matrix(kRows, 2, 3));
  OnBoth keys(filled(kRows / 16, 32, 0)), values(filled(kRows / 16, 32, 0));
  const RopeTable of_gpu(*devices().gpu, 17, 2, 10000), of_cpu(*devices().cpu, 17, 2, 10000);
  const auto cache = [&](TensorView (OnBoth::*where)()) {
    KvLayer layer{(keys.*where)(), (values.*where)()};
    layer.keys.shape = layer.values.shape = {kRows / 16, 1, 16, 2};
    return layer;
  };
  for (int i = 0; i < 2; ++i) {  // when the ring is new, and when it is not
    const BatchView batch{positions, slots, {}};
    devices().gpu->rope_and_store_kv(q.gpu(), k.gpu(), v.gpu(), of_gpu, batch, cache(&OnBoth::gpu));
    devices().cpu->rope_and_store_kv(q.cpu(), k.cpu(), v.cpu(), of_cpu, batch, cache(&OnBoth::cpu));
    REQUIRE_CLOSE(q, 8 * kEps);
    REQUIRE_CLOSE(k, 8 * kEps);
    REQUIRE_CLOSE(keys, 8 * kEps);
    REQUIRE_CLOSE(values, 0);
  }
}

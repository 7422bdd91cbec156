// Every launcher against plain loops on the host: all dtypes, sizes around a warp and a block,
// strided rows, addresses that allow 16-byte accesses and such that do not.
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/comm/tree_sum.h"
#include "common/core/error.h"
#include "common/device/cuda/activation.h"
#include "common/device/cuda/elementwise.h"
#include "common/device/cuda/embedding.h"
#include "common/device/cuda/reduce.h"
#include "common/device/cuda/rms_norm.h"
#include "common/device/cuda/rope_kv.h"
#include "common/device/cuda/selection.h"
#include "common/device/reference_ops.h"
#include "tests/catch.h"
#include "tests/device/cuda/device_memory.h"

using namespace tp;
using namespace tp::cuda;

namespace {

constexpr double kUnit = 0x1p-24;  // largest relative error of rounding to f32
constexpr DType kStorage[] = {DType::f32, DType::bf16, DType::f16};
constexpr Layout kLayouts[] = {Layout::packed, Layout::strided, Layout::odd};

// Rows and columns: less than a warp, one, one more, more than a block of scalars and of packs, and
// a row for a whole block of packs. Zero rows do nothing.
constexpr Extent kSizes[] = {{0, 33},  {1, 1},   {3, 31},  {2, 32},   {33, 33},
                             {2, 257}, {5, 260}, {31, 48}, {2, 1024}, {1, 1037}};

// Whether 16-byte accesses are possible, from which the launchers choose their path.
bool vectorizable(const DeviceMatrix& m) {
  return reinterpret_cast<std::uintptr_t>(m.data()) % 16 == 0 && m.rows().stride % 4 == 0 &&
         m.size().columns % 4 == 0;
}

bool same_bits(const Matrix& a, const Matrix& b) {
  return a.rows == b.rows && a.cols == b.cols &&
         (a.values.empty() ||
          std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0);
}

// Calls test(size, layout) for all sizes and layouts, and watches that both paths were taken.
template <class Test>
void for_sizes(const TestStream& stream, const Test& test) {
  std::set<bool> paths;
  for (const Extent size : kSizes) {
    for (const Layout layout : kLayouts) {
      CAPTURE(size.rows, size.columns, static_cast<int>(layout));
      test(size, layout);
      paths.insert(vectorizable(DeviceMatrix(stream, size.rows, size.columns, layout)));
    }
  }
  REQUIRE(paths == std::set<bool>{false, true});
}

// The largest of |result - exact(r, c)| / bound(r, c); at most 1 if all is well, NaN if any value
// is.
template <class Exact, class Bound>
double worst(const Matrix& result, const Exact& exact, const Bound& bound) {
  double largest = 0;
  for (std::int64_t r = 0; r < result.rows; ++r)
    for (std::int64_t c = 0; c < result.cols; ++c) {
      const double ratio = std::abs(static_cast<double>(result(r, c)) - exact(r, c)) / bound(r, c);
      if (!(ratio <= largest)) largest = ratio;
    }
  return largest;
}

}  // namespace

TEST_CASE("CUDA add exactly") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    const Matrix a = random_matrix(size.rows, size.columns, 1);
    const Matrix b = random_matrix(size.rows, size.columns, 2);
    const DeviceMatrix x(stream, a, DType::f32, layout), y(stream, b, DType::f32, layout);
    cuda::add(x.rows(), y.rows(), size, stream);
    REQUIRE(same_bits(x.values(), tp::add(a, b)));
    REQUIRE(same_bits(y.values(), b));
  });
}

TEST_CASE("CUDA add_bias exactly with biases of all dtypes") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    for (const DType dtype : kStorage) {
      const Matrix a = random_matrix(size.rows, size.columns, 1);
      const Matrix bias = rounded(random_matrix(1, size.columns, 2), dtype);
      const DeviceMatrix x(stream, a, DType::f32, layout), b(stream, bias, dtype, layout);
      add_bias(x.rows(), b.weights(), size, stream);
      REQUIRE(same_bits(x.values(), add_row(a, bias)));
    }
  });
}

TEST_CASE("CUDA round_rows rounds to nearest even and packs the rows") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Matrix a = random_matrix(size.rows, size.columns, 1);
      for (std::size_t i = 0; i < a.values.size(); i += 3)  // ties of bf16 and of f16
        a.values[i] = 1.0f + static_cast<float>(i % 64) * (i % 2 == 0 ? 0x1p-8f : 0x1p-11f);
      const DeviceMatrix x(stream, a, DType::f32, layout);
      const DeviceMatrix out(stream, Matrix(size.rows, size.columns), dtype);
      round_rows(x.rows(), size, out.data(), dtype, stream);
      REQUIRE(same_bits(out.values(), rounded(a, dtype)));
    }
  });
}

TEST_CASE("CUDA round_rows keeps infinities NaN zeros and what is too small or large") {
  const TestStream stream;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Matrix a(1, 12,
                 {kInfinity, -kInfinity, NAN, 0.0f, -0.0f, 65519.0f, 65520.0f, -1e30f, 0x1p-24f,
                  0x1p-25f, 0x1.8p-25f, 3e38f});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const DeviceMatrix x(stream, a), out(stream, Matrix(1, 12), dtype);
    round_rows(x.rows(), x.size(), out.data(), dtype, stream);
    const Matrix wanted = rounded(a, dtype), got = out.values();
    for (std::int64_t i = 0; i < 12; ++i) {
      CAPTURE(i, wanted(0, i), got(0, i));
      if (i == 2)
        REQUIRE(std::isnan(got(0, i)));
      else
        REQUIRE(stored_bits(got(0, i), DType::f32) == stored_bits(wanted(0, i), DType::f32));
    }
  }
}

TEST_CASE("CUDA select_rows exactly in any order and repeatedly") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    const std::int64_t rows = size.rows + 2;
    const Matrix a = random_matrix(rows, size.columns, 1);
    std::vector<std::int32_t> picked;
    for (std::int64_t i = 0; i < size.rows; ++i)
      picked.push_back(static_cast<std::int32_t>((i * 7 + 2) % rows));
    Matrix wanted(size.rows, size.columns);
    reference::select_rows(a.view(), picked, wanted.view());
    const DeviceMatrix x(stream, a, DType::f32, layout);
    const DeviceMatrix y(stream, size.rows, size.columns, layout);
    const DeviceArray<std::int32_t> indices(stream, picked);
    select_rows(x.rows(), indices.data(), y.rows(), size, stream);
    REQUIRE(same_bits(y.values(), wanted));
  });
}

TEST_CASE("CUDA elementwise kernels take more rows than a grid has") {
  const TestStream stream;
  const Extent size = {2 * 65535 + 3, 1};
  const Matrix a = random_matrix(size.rows, 1, 1), b = random_matrix(size.rows, 1, 2);
  const DeviceMatrix x(stream, a), y(stream, b);
  cuda::add(x.rows(), y.rows(), size, stream);
  REQUIRE(same_bits(x.values(), tp::add(a, b)));
  std::vector<std::int32_t> backwards;
  Matrix wanted(size.rows, 1);
  for (std::int64_t r = 0; r < size.rows; ++r) {
    backwards.push_back(static_cast<std::int32_t>(size.rows - 1 - r));
    wanted(r, 0) = b(size.rows - 1 - r, 0);
  }
  const DeviceArray<std::int32_t> rows(stream, backwards);
  select_rows(y.rows(), rows.data(), x.rows(), size, stream);
  REQUIRE(same_bits(x.values(), wanted));
}

TEST_CASE("CUDA activations to the last bits of exp and erf") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    for (const Activation act : {Activation::silu, Activation::gelu}) {
      const Matrix g = scale(random_matrix(size.rows, size.columns, 1), 12);
      const Matrix u = random_matrix(size.rows, size.columns, 2);
      const auto exact = [&](std::int64_t r, std::int64_t c) {
        const double x = g(r, c);
        return act == Activation::silu ? x / (1 + std::exp(-x))
                                       : 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
      };
      // exp and erf are within 2 units in the last place, and 5 roundings follow. 1 + erf can
      // cancel, so the error counts relative to x.
      const auto bound = [&](std::int64_t r, std::int64_t c) {
        return 8 * kUnit * std::abs(static_cast<double>(g(r, c)));
      };
      const DeviceMatrix gate(stream, g, DType::f32, layout), up(stream, u, DType::f32, layout);
      const DeviceMatrix y(stream, size.rows, size.columns, layout);
      gated_activation(gate.rows(), up.rows(), y.rows(), size, act, stream);
      REQUIRE(worst(
                  y.values(),
                  [&](std::int64_t r, std::int64_t c) {
                    return exact(r, c) * static_cast<double>(u(r, c));
                  },
                  [&](std::int64_t r, std::int64_t c) {
                    return bound(r, c) * std::abs(static_cast<double>(u(r, c)));
                  }) <= 1);
      activate(gate.rows(), size, act, stream);
      REQUIRE(worst(gate.values(), exact, bound) <= 1);
    }
  });
}

TEST_CASE("CUDA gated_activation takes two halves of one matrix and may write over one") {
  const TestStream stream;
  constexpr std::int64_t kRows = 5, kInner = 36;
  const Matrix both = random_matrix(kRows, 2 * kInner, 1);
  const DeviceMatrix apart_gate(stream, both.cols_in({0, kInner}));
  const DeviceMatrix apart_up(stream, both.cols_in({kInner, 2 * kInner}));
  const DeviceMatrix apart(stream, kRows, kInner), fused(stream, both);
  const Extent size = {kRows, kInner};
  gated_activation(apart_gate.rows(), apart_up.rows(), apart.rows(), size, Activation::silu,
                   stream);
  const Rows gate = fused.rows(), up = {gate.data + kInner, gate.stride};
  gated_activation(gate, up, gate, size, Activation::silu, stream);
  REQUIRE(same_bits(fused.values().cols_in({0, kInner}), apart.values()));
  REQUIRE(
      same_bits(fused.values().cols_in({kInner, 2 * kInner}), both.cols_in({kInner, 2 * kInner})));
}

TEST_CASE("CUDA embed takes rows of the shard and writes zeros for the others") {
  const TestStream stream;
  for_sizes(stream, [&](Extent size, Layout layout) {
    for (const DType dtype : kStorage) {
      const Range held = {10, 17};
      const Matrix table = rounded(random_matrix(held.size(), size.columns, 1), dtype);
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < size.rows; ++i)
        ids.push_back(static_cast<std::int32_t>(8 + i * 5 % 11));  // 8 to 18
      Matrix wanted(size.rows, size.columns);
      reference::embed(ids, table.view(), held, wanted.view());
      const DeviceMatrix shard(stream, table, dtype, layout);
      const DeviceMatrix y(stream, size.rows, size.columns, layout);
      const DeviceArray<std::int32_t> tokens(stream, ids);
      embed(tokens.data(), shard.weights(), held, y.rows(), size, stream);
      REQUIRE(same_bits(y.values(), wanted));
    }
  });
}

namespace {

constexpr float kEps = 1e-5f;

// norm(x) * w in double.
Matrix exact_norm(const Matrix& x, const Matrix& w) {
  Matrix y(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < x.cols; ++c)
      squares += static_cast<double>(x(r, c)) * static_cast<double>(x(r, c));
    const double norm =
        std::sqrt(squares / static_cast<double>(x.cols) + static_cast<double>(kEps));
    for (std::int64_t c = 0; c < x.cols; ++c)
      y(r, c) =
          static_cast<float>(static_cast<double>(x(r, c)) / norm * static_cast<double>(w(0, c)));
  }
  return y;
}

// A thread adds at most columns / 32 squares and then 5 + 8 partial sums; half of the relative
// error of the sum is that of its root. 6 more roundings: mean, eps, root, quotient, two products;
// and one of the exact value to f32.
double norm_error(const Matrix& y, const Matrix& exact) {
  const double relative = (static_cast<double>(y.cols) / 32 + 13) / 2 + 7;
  return worst(
      y, [&](std::int64_t r, std::int64_t c) { return static_cast<double>(exact(r, c)); },
      [&](std::int64_t r, std::int64_t c) {
        return relative * kUnit * std::abs(static_cast<double>(exact(r, c)));
      });
}

// Wider rows than a team of threads can hold in registers: for a warp, and for a block.
constexpr Extent kNormSizes[] = {{2, 1028}, {3, 2052}, {1, 2049}, {2, 8196}};

}  // namespace

TEST_CASE("CUDA rms_norm alone and with the residual") {
  const TestStream stream;
  const auto test = [&](Extent size, Layout layout) {
    for (const DType dtype : kStorage) {
      const Matrix a = random_matrix(size.rows, size.columns, 1);
      const Matrix d = random_matrix(size.rows, size.columns, 2);
      const Matrix w = rounded(random_matrix(1, size.columns, 3), dtype);
      const DeviceMatrix x(stream, a, DType::f32, layout), weight(stream, w, dtype, layout);
      const DeviceMatrix delta(stream, d, DType::f32, layout);
      const DeviceMatrix y(stream, size.rows, size.columns, layout);
      rms_norm(x.rows(), weight.weights(), kEps, y.rows(), size, stream);
      REQUIRE(norm_error(y.values(), exact_norm(a, w)) <= 1);
      REQUIRE(same_bits(x.values(), a));

      const Matrix sum = tp::add(a, d);
      add_rms_norm(x.rows(), delta.rows(), weight.weights(), kEps, y.rows(), size, stream);
      REQUIRE(same_bits(x.values(), sum));
      REQUIRE(norm_error(y.values(), exact_norm(sum, w)) <= 1);

      // In place: the norm of x over x; of the sum over delta.
      const Matrix of_sum = y.values();
      rms_norm(x.rows(), weight.weights(), kEps, x.rows(), size, stream);
      REQUIRE(same_bits(x.values(), of_sum));
      const DeviceMatrix again(stream, a, DType::f32, layout);
      add_rms_norm(again.rows(), delta.rows(), weight.weights(), kEps, delta.rows(), size, stream);
      REQUIRE(same_bits(delta.values(), of_sum));
    }
  };
  for_sizes(stream, test);
  for (const Extent size : kNormSizes) {
    test(size, Layout::packed);
    test(size, Layout::odd);
  }
}

TEST_CASE("CUDA rms_norm gives a row the same bits in any batch") {
  const TestStream stream;
  const Matrix a = random_matrix(9, 1500, 1), w = random_matrix(1, 1500, 2);
  const DeviceMatrix x(stream, a), weight(stream, w), y(stream, 9, 1500);
  rms_norm(x.rows(), weight.weights(), kEps, y.rows(), x.size(), stream);
  for (const std::int64_t row : {0, 8}) {
    const DeviceMatrix alone(stream, a.rows_in({row, row + 1})), one(stream, 1, 1500);
    rms_norm(alone.rows(), weight.weights(), kEps, one.rows(), {1, 1500}, stream);
    REQUIRE(same_bits(one.values(), y.values().rows_in({row, row + 1})));
  }
}

TEST_CASE("CUDA rms_norm_heads normalises each head by itself") {
  const TestStream stream;
  for (const std::int64_t head_dim : {1, 6, 8, 10, 12, 16, 32, 64, 80, 96, 128, 256}) {
    for (const Layout layout : kLayouts) {
      for (const DType dtype : kStorage) {
        CAPTURE(head_dim, static_cast<int>(layout), static_cast<int>(dtype));
        constexpr std::int64_t kRows = 5, kHeads = 3;
        const Matrix a = random_matrix(kRows, kHeads * head_dim, 1);
        const Matrix w = rounded(random_matrix(1, head_dim, 2), dtype);
        const DeviceMatrix x(stream, a, DType::f32, layout), weight(stream, w, dtype, layout);
        rms_norm_heads(x.rows(), weight.weights(), kEps, {kRows, kHeads, head_dim}, stream);
        const Matrix got = x.values();
        for (std::int64_t head = 0; head < kHeads; ++head) {
          const Range columns = Range{head, head + 1}.times(head_dim);
          REQUIRE(norm_error(got.cols_in(columns), exact_norm(a.cols_in(columns), w)) <= 1);
        }
      }
    }
  }
}

namespace {

// A cache of 5 blocks, all elements -1, and the rows of a batch with the slots they go to.
struct Rotation {
  std::int64_t head_dim;
  DType dtype;
  Layout layout;
  std::int64_t query_heads = 3, kv_heads = 2, block_size = 4, num_blocks = 5;
  std::vector<std::int32_t> positions{0, 1, 40, 7, 63};
  std::vector<std::int32_t> slots{3, 4, 19, -1, 0};
};

void test_rotation(const TestStream& stream, const Rotation& t, bool rotates, bool stores) {
  CAPTURE(t.head_dim, static_cast<int>(t.dtype), static_cast<int>(t.layout), rotates, stores);
  const auto rows = static_cast<std::int64_t>(t.positions.size());
  const std::int64_t half = t.head_dim / 2;
  const Matrix q = random_matrix(rows, t.query_heads * t.head_dim, 1);
  const Matrix k = random_matrix(rows, t.kv_heads * t.head_dim, 2);
  const Matrix v = random_matrix(rows, t.kv_heads * t.head_dim, 3);
  const Matrix cos = random_matrix(64, half, 4), sin = random_matrix(64, half, 5);
  Matrix pool(t.num_blocks, t.kv_heads * t.block_size * t.head_dim);
  std::fill(pool.values.begin(), pool.values.end(), -1.0f);

  const DeviceMatrix dq(stream, q, DType::f32, t.layout), dk(stream, k, DType::f32, t.layout);
  const DeviceMatrix dv(stream, v, DType::f32, t.layout), dcos(stream, cos), dsin(stream, sin);
  const DeviceMatrix keys(stream, pool, t.dtype, t.layout), values(stream, pool, t.dtype, t.layout);
  const DeviceArray<std::int32_t> positions(stream, t.positions), slots(stream, t.slots);
  RopeKv args = {.rows = rows, .head_dim = t.head_dim, .query_heads = t.query_heads};
  args.q = dq.rows();
  args.kv_heads = t.kv_heads;
  args.k = dk.rows();
  args.v = dv.rows();
  args.cache = {keys.data(), values.data(), t.dtype,   keys.rows().stride,
                t.kv_heads,  t.block_size,  t.head_dim};
  if (rotates) {
    args.positions = positions.data();
    args.cos = dcos.rows().data;
    args.sin = dsin.rows().data;
  }
  if (stores) args.slots = slots.data();
  rope_store_kv(args, stream);

  // Two products and their sum, where a GPU may leave out one rounding.
  const auto rotation_error = [&](const Matrix& got, const Matrix& before) {
    const auto pair = [&](std::int64_t r, std::int64_t c, bool magnitudes) {
      const std::int64_t i = c % t.head_dim % half;
      const bool low = c % t.head_dim < half;
      const std::int64_t angle = t.positions[static_cast<std::size_t>(r)];
      const double x = before(r, c), other = before(r, low ? c + half : c - half);
      const double a = x * static_cast<double>(cos(angle, i));
      const double b = other * static_cast<double>(sin(angle, i)) * (low ? -1 : 1);
      return magnitudes ? std::abs(a) + std::abs(b) : a + b;
    };
    return worst(
        got, [&](std::int64_t r, std::int64_t c) { return pair(r, c, false); },
        [&](std::int64_t r, std::int64_t c) { return 2 * kUnit * pair(r, c, true); });
  };
  if (rotates) {
    REQUIRE(rotation_error(dq.values(), q) <= 1);
    REQUIRE(rotation_error(dk.values(), k) <= 1);
  } else {
    REQUIRE(same_bits(dq.values(), q));
    REQUIRE(same_bits(dk.values(), k));
  }

  // What was stored is k, as it is now, and v.
  const auto stored = [&](const Matrix& from) {
    Matrix wanted = pool;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t slot = t.slots[static_cast<std::size_t>(r)];
      if (!stores || slot < 0) continue;
      for (std::int64_t c = 0; c < from.cols; ++c) {
        const std::int64_t place = c / t.head_dim * t.block_size + slot % t.block_size;
        wanted(slot / t.block_size, place * t.head_dim + c % t.head_dim) = from(r, c);
      }
    }
    return rounded(wanted, t.dtype);
  };
  REQUIRE(same_bits(keys.values(), stored(dk.values())));
  REQUIRE(same_bits(values.values(), stored(v)));
}

}  // namespace

TEST_CASE("CUDA rope_store_kv rotates stores or both") {
  const TestStream stream;
  for (const std::int64_t head_dim : {2, 6, 8, 10, 12, 16, 32, 64, 80, 96, 128, 256})
    for (const DType dtype : kStorage)
      for (const Layout layout : kLayouts) {
        test_rotation(stream, {head_dim, dtype, layout}, true, true);
        test_rotation(stream, {head_dim, dtype, layout}, true, false);
        test_rotation(stream, {head_dim, dtype, layout}, false, true);
      }
}

TEST_CASE("CUDA rope_store_kv stores an odd head_dim but does not rotate it") {
  const TestStream stream;
  for (const DType dtype : kStorage) {
    test_rotation(stream, {7, dtype, Layout::packed}, false, true);
    test_rotation(stream, {1, dtype, Layout::packed}, false, true);
  }
  REQUIRE_THROWS_WITH(test_rotation(stream, {7, DType::f32, Layout::packed}, true, true),
                      ContainsSubstring("odd head_dim"));
}

TEST_CASE(
    "CUDA rope_store_kv without rows does nothing, and without heads of q it rotates k alone") {
  const TestStream stream;
  test_rotation(stream, {8, DType::bf16, Layout::packed, 0, 2}, true, true);
  const DeviceMatrix cache(stream, Matrix(1, 64));
  RopeKv args = {.rows = 0, .head_dim = 8, .query_heads = 1};
  args.kv_heads = 1;
  args.cache = {cache.data(), cache.data(), DType::f32, 64, 1, 8, 8};
  rope_store_kv(args, stream);
}

namespace {

struct Picks {
  std::vector<float> values;
  std::vector<std::int32_t> columns;
};

Picks run_selection(
    const TestStream& stream, const Matrix& x, std::int64_t k, Layout layout, bool arg_max_only) {
  const DeviceMatrix logits(stream, x, DType::f32, layout);
  const Extent size = {x.rows, x.cols};
  const auto count = static_cast<std::size_t>(x.rows * k);
  const DeviceArray<float> values(stream, std::vector<float>(count, NAN));
  const DeviceArray<std::int32_t> columns(stream, std::vector<std::int32_t>(count, -7));
  const DeviceArray<std::byte> workspace(
      stream, std::vector<std::byte>(static_cast<std::size_t>(selection_workspace_bytes(size, k))));
  const Selected out = {values.data(), columns.data()};
  if (arg_max_only)
    arg_max(logits.rows(), size, workspace.data(), out, stream);
  else
    top_k(logits.rows(), size, k, workspace.data(), out, stream);
  return {values.values(), columns.values()};
}

// The best of each row by a stable sort.
Picks sorted_picks(const Matrix& x, std::int64_t k) {
  Picks picks;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(x.cols));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return x(r, a) > x(r, b); });
    for (std::int64_t i = 0; i < k; ++i) {
      const bool found = i < x.cols;
      const std::int32_t column = found ? order[static_cast<std::size_t>(i)] : -1;
      picks.columns.push_back(column);
      picks.values.push_back(found ? x(r, column) : -std::numeric_limits<float>::infinity());
    }
  }
  return picks;
}

}  // namespace

TEST_CASE("CUDA arg_max and top_k against a sort with many ties") {
  const TestStream stream;
  for (const std::int64_t columns : {1, 2, 31, 32, 33, 257, 260, 2048, 2049, 4096, 4100, 9000}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(columns, static_cast<int>(layout));
      const Matrix few = random_integers(3, columns, 1), many = random_matrix(2, columns, 2);
      for (const Matrix& x : {few, many}) {
        const Picks best = run_selection(stream, x, 1, layout, true);
        REQUIRE(best.values == sorted_picks(x, 1).values);
        REQUIRE(best.columns == sorted_picks(x, 1).columns);
        for (const std::int64_t k : {1, 5, 64}) {
          const Picks picks = run_selection(stream, x, k, layout, false);
          REQUIRE(picks.values == sorted_picks(x, k).values);
          REQUIRE(picks.columns == sorted_picks(x, k).columns);
        }
      }
    }
  }
}

TEST_CASE("CUDA top_k of a vocabulary takes three rounds") {
  const TestStream stream;
  const Matrix x = random_integers(1, 150000, 3);
  const Picks picks = run_selection(stream, x, 64, Layout::packed, false);
  REQUIRE(picks.columns == sorted_picks(x, 64).columns);
}

TEST_CASE("CUDA arg_max and top_k with zeros of both signs infinities NaN and without columns") {
  const TestStream stream;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Matrix zeros(1, 4, {-1.0f, -0.0f, 0.0f, -2.0f});
  REQUIRE(run_selection(stream, zeros, 1, Layout::packed, true).columns[0] == 1);
  REQUIRE(run_selection(stream, zeros, 3, Layout::packed, false).columns ==
          std::vector<std::int32_t>{1, 2, 0});
  const Matrix infinite(1, 5, {-kInfinity, 3, kInfinity, -kInfinity, kInfinity});
  REQUIRE(run_selection(stream, infinite, 1, Layout::packed, true).columns[0] == 2);
  REQUIRE(run_selection(stream, infinite, 5, Layout::packed, false).columns ==
          std::vector<std::int32_t>{2, 4, 1, 0, 3});
  const Matrix masked(1, 3, {-kInfinity, -kInfinity, -kInfinity});
  REQUIRE(run_selection(stream, masked, 1, Layout::packed, true).columns[0] == 0);

  for (const float nan : {NAN, -NAN}) {
    Matrix x = random_matrix(3, 5000, 1);
    x(1, 4321) = nan;
    const Picks best = run_selection(stream, x, 1, Layout::packed, true);
    REQUIRE(best.columns[1] == -1);
    REQUIRE(std::isnan(best.values[1]));
    REQUIRE(best.columns[2] == sorted_picks(x.rows_in({2, 3}), 1).columns[0]);
    const Picks picks = run_selection(stream, x, 2, Layout::packed, false);
    REQUIRE(std::isnan(picks.values[2]));
    REQUIRE(picks.columns[2] == 4321);
  }

  const Matrix none(2, 0);
  for (const bool arg_max_only : {true, false}) {
    const Picks picks = run_selection(stream, none, 1, Layout::packed, arg_max_only);
    REQUIRE(picks.columns == std::vector<std::int32_t>{-1, -1});
    REQUIRE(picks.values == std::vector<float>{-kInfinity, -kInfinity});
  }
  REQUIRE(run_selection(stream, Matrix(0, 9), 1, Layout::packed, true).columns.empty());
  REQUIRE_THROWS_WITH(run_selection(stream, zeros, 65, Layout::packed, false),
                      ContainsSubstring("k is not in 1 to 64"));
}

namespace {

// The sum over ranks as ThreadCommunicator computes it.
std::vector<float> tree_of(const std::vector<Matrix>& operands, DType dtype) {
  std::vector<float> sums;
  for (std::size_t i = 0; i < operands[0].values.size(); ++i) {
    float sum = 0;
    const auto value = [&](int rank, float* out) {
      *out = operands[static_cast<std::size_t>(rank)].values[i];
    };
    tree_sum(0, static_cast<int>(operands.size()), value, &sum, 1);
    sums.push_back(stored_value(stored_bits(sum, dtype), dtype));
  }
  return sums;
}

}  // namespace

TEST_CASE("CUDA reduce_ranks adds in the tree of the communicators bit for bit") {
  const TestStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (int ranks = 1; ranks <= kMaxReduceRanks; ++ranks) {
      for (const std::int64_t length : {1, 33, 256, 1037}) {
        for (const Layout layout : {Layout::packed, Layout::odd}) {
          CAPTURE(static_cast<int>(dtype), ranks, length, static_cast<int>(layout));
          std::vector<Matrix> operands;
          std::vector<std::unique_ptr<DeviceMatrix>> on_device;
          ReduceSources sources;
          sources.count = ranks;
          for (int rank = 0; rank < ranks; ++rank) {
            const auto seed = static_cast<std::uint64_t>(rank + 1);
            operands.push_back(rounded(random_matrix(1, length, seed), dtype));
            on_device.push_back(
                std::make_unique<DeviceMatrix>(stream, operands.back(), dtype, layout));
            sources.rank[rank] = on_device.back()->data();
          }
          const std::vector<float> wanted = tree_of(operands, dtype);
          const DeviceMatrix out(stream, Matrix(1, length), dtype, layout);
          reduce_ranks(sources, dtype, {0, length}, out.data(), stream);
          REQUIRE(out.values().values == wanted);

          // In place, and only a part.
          const Range part = {length / 3, length - length / 4};
          const DeviceMatrix& last = *on_device.back();
          reduce_ranks(sources, dtype, part, const_cast<void*>(sources.rank[ranks - 1]), stream);
          const Matrix mixed = last.values();
          for (std::int64_t i = 0; i < length; ++i)
            REQUIRE(mixed(0, i) == (part.contains(i) ? wanted[static_cast<std::size_t>(i)]
                                                     : operands.back()(0, i)));
        }
      }
    }
  }
}

TEST_CASE("CUDA reduce_ranks does nothing for an empty range and refuses what it cannot add") {
  const TestStream stream;
  const DeviceMatrix x(stream, Matrix(1, 4, {1, 2, 3, 4}));
  ReduceSources sources;
  sources.rank[0] = x.data();
  sources.count = 1;
  reduce_ranks(sources, DType::f32, {2, 2}, x.data(), stream);
  REQUIRE(x.values().values == std::vector<float>{1, 2, 3, 4});
  REQUIRE_THROWS_WITH(reduce_ranks(sources, DType::f16, {0, 4}, x.data(), stream),
                      ContainsSubstring("not f32 or bf16"));
  sources.count = kMaxReduceRanks + 1;
  REQUIRE_THROWS_WITH(reduce_ranks(sources, DType::f32, {0, 4}, x.data(), stream),
                      ContainsSubstring("1 to 64"));
}

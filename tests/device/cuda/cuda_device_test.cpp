// Every operation of the GPU device against the CPU device: sizes around those of warps and blocks,
// all dtypes, strided rows, rows without elements and matrices without rows.
#include "common/device/cuda/cuda_device.h"

#include <functional>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/device/rope_table.h"
#include "tests/catch.h"
#include "tests/device/cuda/on_both.h"

using namespace tp;

namespace {

struct Size {
  std::int64_t rows, cols;
};
// Odd sizes, those that are multiples of a wide access, and empty ones.
constexpr Size kSizes[] = {{1, 1},  {3, 31},  {31, 32}, {32, 33}, {5, 257}, {257, 5},
                           {2, 64}, {7, 100}, {1, 520}, {0, 32},  {3, 0}};

std::string text_of(const Size& size) {
  return std::to_string(size.rows) + " x " + std::to_string(size.cols);
}

// Calls body(size, dtype, layout) for all of them.
void for_all(const std::function<void(Size, DType, Layout)>& body) {
  for (const Size& size : kSizes)
    for (const DType dtype : kStorage)
      for (const Layout layout : kLayouts) {
        INFO(text_of(size) << " " << name_of(dtype) << " layout " << static_cast<int>(layout));
        body(size, dtype, layout);
      }
}

// The same for activations, which are f32.
void for_all(const std::function<void(Size, Layout)>& body) {
  for_all([&](Size size, DType dtype, Layout layout) {
    if (dtype == DType::f32) body(size, layout);
  });
}

Device& cpu() {
  return *devices().cpu;
}
Device& gpu() {
  return *devices().gpu;
}

// Values with ties, a NaN, or infinities among them.
Matrix with_special_rows(std::int64_t cols) {
  Matrix m = random_matrix(8, cols, 5);
  const std::int64_t last = cols - 1;
  m(0, last) = m(0, cols / 2) = 2;  // the first of equal ones
  m(1, cols / 3) = kNaN;
  m(2, last) = kNaN;
  m(3, cols / 2) = kInfinity;
  m(4, 0) = -kInfinity;
  for (std::int64_t c = 0; c < cols; ++c) m(5, c) = -kInfinity;
  for (std::int64_t c = 0; c < cols; ++c) m(6, c) = 1;
  m(7, cols / 4) = kInfinity, m(7, last) = kNaN;
  return m;
}

}  // namespace

// Both sums are within K / 2 roundings of the true one. With 16-bit weights the GPU rounds the
// activations, so the CPU is given rounded ones; products of two 16-bit numbers are exact in f32.
TEST_CASE("the GPU's matrix products are the CPU's up to the order of the sum") {
  struct Shapes {
    std::int64_t m, n, k;
  };
  for (const Shapes s : {Shapes{1, 1, 1},
                         {1, 33, 257},
                         {31, 32, 33},
                         {257, 5, 31},
                         {2, 257, 32},
                         {33, 1, 100},
                         {5, 48, 1},
                         {3, 5, 0},
                         {0, 4, 8},
                         {4, 0, 8}})
    for (const DType dtype : kStorage)
      for (const Layout layout : kLayouts) {
        INFO(s.m << " x " << s.n << " x " << s.k << " " << name_of(dtype) << " layout "
                 << static_cast<int>(layout));
        const Matrix x = random_matrix(s.m, s.k, 1), w = random_matrix(s.n, s.k, 2);
        const Matrix weight_values = rounded(w, dtype);
        OnBoth x_wide(x, DType::f32, layout), x_rounded(rounded(x, dtype), DType::f32, layout);
        OnBoth weight(w, dtype, layout), y(s.m, s.n, layout);
        const SumBlocks blocks = SumBlocks::whole(s.k);
        gpu().matmul(x_wide.gpu(), weight.gpu(), y.gpu(), blocks);
        cpu().matmul(x_rounded.cpu(), weight.cpu(), y.cpu(), blocks);
        const double most = s.m * s.n == 0 ? 0 : max_dot_magnitude(x.view(), weight_values.view());
        REQUIRE_CLOSE(y, Tolerance::reordered_sum(s.k, 1.01 * most).bound);
      }
}

TEST_CASE("the GPU's sums of tensors and biases have the CPU's bits") {
  for_all([](Size size, Layout layout) {
    OnBoth x(random_matrix(size.rows, size.cols, 1), DType::f32, layout);
    OnBoth y(random_matrix(size.rows, size.cols, 2), DType::f32, layout);
    gpu().add(x.gpu(), y.gpu());
    cpu().add(x.cpu(), y.cpu());
    REQUIRE_CLOSE(x, 0);
  });
  for_all([](Size size, DType dtype, Layout layout) {
    OnBoth x(random_matrix(size.rows, size.cols, 1), DType::f32, layout);
    const VectorOnBoth bias(random_matrix(1, size.cols, 2), dtype);
    gpu().add_bias(x.gpu(), bias.gpu());
    cpu().add_bias(x.cpu(), bias.cpu());
    REQUIRE_CLOSE(x, 0);
  });
}

// Of exp and erf, the sum, the quotient and the products: at most 8 eps of the largest value.
TEST_CASE("the GPU's activations are the CPU's up to a few roundings") {
  for (const Activation act : {Activation::silu, Activation::gelu})
    for_all([act](Size size, Layout layout) {
      const Matrix input = scale(random_matrix(size.rows, size.cols, 1), 6);
      OnBoth x(input, DType::f32, layout), up(input, DType::f32, layout);
      OnBoth y(size.rows, size.cols, layout);
      gpu().gated_activation(x.gpu(), up.gpu(), y.gpu(), act);
      cpu().gated_activation(x.cpu(), up.cpu(), y.cpu(), act);
      REQUIRE_CLOSE(y, 36 * 8 * kEps);
      gpu().activate(x.gpu(), act);
      cpu().activate(x.cpu(), act);
      REQUIRE_CLOSE(x, 6 * 8 * kEps);
    });
}

TEST_CASE("the GPU's embedding has the CPU's bits") {
  for_all([](Size size, DType dtype, Layout layout) {
    const Range held{40, 40 + 23};
    OnBoth table(random_matrix(held.size(), size.cols, 1), dtype, layout);
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < size.rows; ++i)  // some before, some in, some behind the shard
      ids.push_back(static_cast<std::int32_t>(38 + (i * 7) % 27));
    OnBoth y(size.rows, size.cols, layout);
    gpu().embed(ids, table.gpu(), held, y.gpu());
    cpu().embed(ids, table.cpu(), held, y.cpu());
    REQUIRE_CLOSE(y, 0);
  });
}

// The sum of the squares has as many terms as columns; its root, the quotient and two products add
// a few roundings.
TEST_CASE("the GPU's norms are the CPU's up to the order of the sum") {
  for_all([](Size size, DType dtype, Layout layout) {
    const auto terms = static_cast<double>(size.cols);
    const VectorOnBoth weight(random_matrix(1, size.cols, 2), dtype);
    OnBoth x(random_matrix(size.rows, size.cols, 1), DType::f32, layout);
    OnBoth delta(random_matrix(size.rows, size.cols, 3), DType::f32, layout);
    OnBoth y(size.rows, size.cols, layout);
    gpu().rms_norm(x.gpu(), weight.gpu(), 1e-5f, y.gpu());
    cpu().rms_norm(x.cpu(), weight.cpu(), 1e-5f, y.cpu());
    REQUIRE_CLOSE(y, (terms / 2 + 8) * kEps * largest_magnitude(y.cpu()));
    gpu().add_rms_norm(x.gpu(), delta.gpu(), weight.gpu(), 1e-5f, y.gpu());
    cpu().add_rms_norm(x.cpu(), delta.cpu(), weight.cpu(), 1e-5f, y.cpu());
    REQUIRE_CLOSE(x, 0);
    REQUIRE_CLOSE(y, (terms / 2 + 8) * kEps * largest_magnitude(y.cpu()));
  });
  for (const std::int64_t head_dim : {1, 6, 8, 10, 12, 16, 32, 64, 80, 96, 128})
    for (const DType dtype : kStorage)
      for (const Layout layout : kLayouts)
        for (const std::int64_t rows : {0, 1, 9}) {
          INFO("head_dim " << head_dim << " " << name_of(dtype) << " rows " << rows);
          const VectorOnBoth weight(random_matrix(1, head_dim, 2), dtype);
          OnBoth x(random_matrix(rows, 5 * head_dim, 1), DType::f32, layout);
          gpu().rms_norm_heads(x.gpu(), weight.gpu(), 1e-6f);
          cpu().rms_norm_heads(x.cpu(), weight.cpu(), 1e-6f);
          const double largest = largest_magnitude(x.cpu());
          REQUIRE_CLOSE(x, (static_cast<double>(head_dim) / 2 + 8) * kEps * largest);
        }
}

TEST_CASE("the GPU's selected rows have the CPU's bits") {
  for_all([](Size size, Layout layout) {
    if (size.rows == 0) return;
    std::vector<std::int32_t> rows;
    for (std::int64_t i = 0; i < 40; ++i)
      rows.push_back(static_cast<std::int32_t>((i * 11) % size.rows));
    OnBoth x(random_matrix(size.rows, size.cols, 1), DType::f32, layout);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, rows.size()}) {
      const std::span<const std::int32_t> some(rows.data(), count);
      OnBoth y(static_cast<std::int64_t>(count), size.cols, layout);
      gpu().select_rows(x.gpu(), some, y.gpu());
      cpu().select_rows(x.cpu(), some, y.cpu());
      REQUIRE_CLOSE(y, 0);
    }
  });
}

TEST_CASE("the GPU finds the largest of each row as the CPU does") {
  for (const std::int64_t cols : {1, 2, 31, 32, 33, 257, 1024, 5000})
    for (const Layout layout : kLayouts) {
      INFO(cols << " columns, layout " << static_cast<int>(layout));
      OnBoth x(with_special_rows(cols), DType::f32, layout);
      std::vector<std::int32_t> found(8, 77), wanted(8, 88);
      gpu().row_argmax(x.gpu(), found);
      cpu().row_argmax(x.cpu(), wanted);
      REQUIRE(found == wanted);
    }
  OnBoth without_rows(0, 5), without_columns(3, 0);
  std::vector<std::int32_t> none, found(3, 77);
  gpu().row_argmax(without_rows.gpu(), none);
  gpu().row_argmax(without_columns.gpu(), found);
  REQUIRE(found == std::vector<std::int32_t>(3, -1));
}

TEST_CASE("the GPU finds the k largest of each row as the CPU does") {
  for (const std::int64_t cols : {0, 1, 5, 32, 33, 257, 3000})
    for (const std::int64_t k : {1, 2, 31, 64})
      for (const Layout layout : kLayouts) {
        INFO(cols << " columns, k " << k << ", layout " << static_cast<int>(layout));
        Matrix m = random_integers(6, cols, 3);  // with many ties
        for (std::int64_t c = 0; c < cols; ++c) m(1, c) = -kInfinity;
        if (cols > 0) m(2, cols - 1) = kInfinity, m(3, 0) = -kInfinity;
        OnBoth x(m, DType::f32, layout);
        const auto count = static_cast<std::size_t>(6 * k);
        std::vector<std::int32_t> found(count, 77), wanted(count, 88);
        std::vector<float> found_values(count, 77), wanted_values(count, 88);
        gpu().row_top_k(x.gpu(), k, found, found_values);
        cpu().row_top_k(x.cpu(), k, wanted, wanted_values);
        REQUIRE(found == wanted);
        REQUIRE(found_values == wanted_values);
      }
}

// On devices of their own: one that has done larger things before has the room that they must ask for.
TEST_CASE(
    "the workspace of a new GPU device is large enough when operations grow little by little") {
  const auto for_selection = cuda::make_cuda_device({}), for_products = cuda::make_cuda_device({});
  for (std::int64_t rows = 1; rows <= 24; ++rows) {
    INFO(rows << " rows");
    constexpr std::int64_t kColumns = 40, kBest = 3;
    const Matrix x = rounded(random_matrix(rows, kColumns, 1), DType::bf16);

    const auto count = static_cast<std::size_t>(rows * kBest);
    std::vector<std::int32_t> found(count, 77), wanted(count, 88);
    std::vector<float> found_values(count, 77), wanted_values(count, 88);
    for_selection->row_top_k(for_selection->upload(x.view(), DType::f32, "test"), kBest, found,
                             found_values);
    cpu().row_top_k(x.view(), kBest, wanted, wanted_values);
    REQUIRE(found == wanted);
    REQUIRE(found_values == wanted_values);

    // Integers, whose sums are exact, so every bit can be asked for.
    const Matrix integers = random_integers(rows, kColumns, 2),
                 weight = random_integers(5, kColumns, 3);
    Tensor y = for_products->allocate({rows, 5}, DType::f32, "test");
    for_products->matmul(for_products->upload(integers.view(), DType::f32, "test"),
                         for_products->upload(weight.view(), DType::bf16, "test"), y,
                         SumBlocks::whole(kColumns));
    Matrix product(rows, 5);
    cpu().matmul(integers.view(), weight.view(), product.view(), SumBlocks::whole(kColumns));
    REQUIRE(same_bits(for_products->download(y), product.view()));
  }
}

// Two products and a sum of them, which may be fused.
TEST_CASE("the GPU's rotations are the CPU's up to a few roundings") {
  for (const std::int64_t head_dim : {2, 6, 8, 10, 12, 16, 32, 64, 80, 96, 128})
    for (const Layout layout : kLayouts)
      for (const std::int64_t rows : {0, 1, 33}) {
        INFO("head_dim " << head_dim << ", rows " << rows);
        const RopeTable of_cpu(cpu(), 50, head_dim, 10000), of_gpu(gpu(), 50, head_dim, 10000);
        std::vector<std::int32_t> positions;
        for (std::int64_t i = 0; i < rows; ++i)
          positions.push_back(static_cast<std::int32_t>((i * 13) % 50));
        OnBoth x(random_matrix(rows, 3 * head_dim, 1), DType::f32, layout);
        gpu().rope(x.gpu(), of_gpu, positions);
        cpu().rope(x.cpu(), of_cpu, positions);
        REQUIRE_CLOSE(x, 4 * kEps);
      }
}

TEST_CASE("a device refuses tensors that live elsewhere") {
  OnBoth x(random_matrix(2, 4, 1)), y(random_matrix(2, 4, 2)), square(random_matrix(4, 4, 3));
  const VectorOnBoth weight(random_matrix(1, 4, 4), DType::bf16);
  const RopeTable table(gpu(), 4, 4, 10000);
  const std::vector<std::int32_t> two{0, 1};
  std::vector<std::int32_t> columns(2);
  std::vector<float> values(2);
  Tensor pool = gpu().allocate({2, 1, 2, 4}, DType::f32, "test");
  Tensor host_pool = Tensor::on_host({2, 1, 2, 4});
  const KvLayer cache{pool.view(), pool.view()}, host_cache{host_pool.view(), host_pool.view()};
  const std::vector<SequenceRows> sequences{{{0, 2}, 0, two}};
  const BatchView batch{two, two, sequences};
  const HeadShard heads{{0, 1}, {0, 1}, 1};
  const auto refused = [](const std::string& what, const std::function<void()>& call) {
    INFO(what);
    REQUIRE_THROWS_WITH(call(), ContainsSubstring(what + " lives on the host, but the device "
                                                         "computes on a GPU; upload or download"));
  };
  Device& d = gpu();
  const SumBlocks blocks = SumBlocks::whole(4);
  refused("matmul: x", [&] { d.matmul(x.cpu(), square.gpu(), y.gpu(), blocks); });
  refused("matmul: the weight", [&] { d.matmul(x.gpu(), square.cpu(), y.gpu(), blocks); });
  refused("matmul: y", [&] { d.matmul(x.gpu(), square.gpu(), y.cpu(), blocks); });
  refused("add: x", [&] { d.add(x.cpu(), y.gpu()); });
  refused("add: y", [&] { d.add(x.gpu(), y.cpu()); });
  refused("add_bias: the bias", [&] { d.add_bias(x.gpu(), weight.cpu()); });
  refused("gated_activation: up",
          [&] { d.gated_activation(x.gpu(), y.cpu(), y.gpu(), Activation::silu); });
  refused("activate: x", [&] { d.activate(x.cpu(), Activation::silu); });
  refused("embed: the table", [&] { d.embed(two, square.cpu(), {0, 4}, y.gpu()); });
  refused("rms_norm: the weight", [&] { d.rms_norm(x.gpu(), weight.cpu(), 1, y.gpu()); });
  refused("add_rms_norm: delta",
          [&] { d.add_rms_norm(x.gpu(), y.cpu(), weight.gpu(), 1, y.gpu()); });
  refused("rms_norm_heads: x", [&] { d.rms_norm_heads(x.cpu(), weight.gpu(), 1); });
  refused("select_rows: y", [&] { d.select_rows(x.gpu(), two, y.cpu()); });
  refused("rope: x", [&] { d.rope(x.cpu(), table, two); });
  refused("store_kv: keys", [&] { d.store_kv(x.cpu(), y.gpu(), two, cache); });
  refused("store_kv: the cache", [&] { d.store_kv(x.gpu(), y.gpu(), two, host_cache); });
  refused("store_kv: the cache", [&] {
    d.store_kv(x.gpu(), y.gpu(), two, {cache.keys, host_cache.values});
  });
  refused("rope_and_store_kv: values",
          [&] { d.rope_and_store_kv(x.gpu(), y.gpu(), y.cpu(), table, batch, cache); });
  refused("attention: q", [&] { d.attention(x.cpu(), cache, heads, batch, y.gpu()); });
  refused("attention: the cache", [&] {
    d.attention(x.gpu(), {cache.keys, host_cache.values}, heads, batch, y.gpu());
  });
  refused("row_argmax: x", [&] { d.row_argmax(x.cpu(), columns); });
  refused("row_top_k: x", [&] { d.row_top_k(x.cpu(), 1, columns, values); });
  refused("write: the destination", [&] { d.write(x.cpu(), y.cpu()); });
  refused("upload: the destination", [&] { d.upload(x.cpu(), y.cpu()); });
  refused("download: the tensor", [&] { d.download(x.cpu()); });
  refused("copy: to", [&] { d.copy(x.gpu(), y.cpu()); });
  // The other way round, and without any device.
  REQUIRE_THROWS_WITH(cpu().add(x.cpu(), y.gpu()),
                      ContainsSubstring("add: y lives on a GPU, but the device computes on the "
                                        "host; upload or download it first"));
  REQUIRE_THROWS_AS(x.gpu().row<float>(0), Error);
  REQUIRE_THROWS_AS(copy_host(x.gpu(), y.cpu()), Error);
}

TEST_CASE("rotating and storing refuses a table for another head_dim than the cache's") {
  OnBoth x(random_matrix(2, 8, 1));
  const std::vector<std::int32_t> two{0, 1};
  for (Device* device : {&cpu(), &gpu()}) {
    const RopeTable table(*device, 4, 4, 10000);
    Tensor pool = device->allocate({2, 1, 2, 8}, DType::f32, "test");
    const TensorView rows = device == &gpu() ? x.gpu() : x.cpu();
    REQUIRE_THROWS_WITH(
        device->rope_and_store_kv(rows, rows, rows, table, {two, two, {}}, {pool, pool}),
        ContainsSubstring("head_dim of the table = 4, head_dim of the cache = 8"));
  }
}

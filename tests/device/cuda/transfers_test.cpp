// What goes between the host and the GPU, and its memory: any shape, size, dtype and stride.
#include <cstring>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Bytes that tell every place from its neighbours, as numbers of any dtype.
Tensor numbered(const Shape& shape, DType dtype) {
  Tensor t = Tensor::on_host(shape, dtype);
  const TensorView view = t.view();
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::uint32_t bits =
        0x3000'0000u + static_cast<std::uint32_t>(i) * 2654435761u % 0xfff'ffffu;
    const std::size_t size = size_of(dtype);  // the upper half, too, is a finite number
    std::memcpy(view.data + static_cast<std::size_t>(i) * size,
                reinterpret_cast<const char*>(&bits) + sizeof bits - size, size);
  }
  return t;
}

struct Transfer {
  Shape shape;
  Range columns;  // those of the matrix that are transferred
};

// Small, strided, larger than the staging memory in rows, in columns and in both, and empty.
std::vector<Transfer> transfers() {
  return {{{1, 1}, {0, 1}},
          {{33, 257}, {0, 257}},
          {{33, 257}, {3, 250}},
          {{257, 1}, {0, 1}},
          {{2300, 1001}, {0, 1001}},
          {{2300, 1001}, {1, 998}},
          {{1, 3 * kMiB + 7}, {0, 3 * kMiB + 7}},
          {{3, 3 * kMiB / 2 + 5}, {2, 3 * kMiB / 2 + 1}},
          {{5, kMiB}, {0, kMiB}},
          {{0, 7}, {0, 7}},
          {{7, 0}, {0, 0}},
          {{4, 8}, {3, 3}}};
}

}  // namespace

TEST_CASE("tensors of any size come back from the GPU as they were") {
  const auto device = cuda::make_cuda_device({});
  for (const Transfer& t : transfers())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
      INFO(t.shape.to_string() << " columns " << t.columns.begin << " to " << t.columns.end << " "
                               << name_of(dtype));
      const Tensor host = numbered(t.shape, dtype);
      const ConstTensorView part = host.view().columns_in(t.columns);
      Tensor mine = device->allocate(t.shape, dtype, "test");
      device->write(part, mine.view().columns_in(t.columns));
      REQUIRE(same_bits(device->download(mine.view().columns_in(t.columns)), part));
      // All around is still zero.
      Tensor wanted = Tensor::on_host(t.shape, dtype);
      for (std::int64_t r = 0; r < t.shape[0] && t.columns.size() > 0; ++r)
        std::memcpy(wanted.view().columns_in(t.columns).rows_in({r, r + 1}).data,
                    part.rows_in({r, r + 1}).data,
                    static_cast<std::size_t>(t.columns.size()) * size_of(dtype));
      REQUIRE(same_bits(device->download(mine), wanted));
      // On the GPU, from packed rows into the columns and back.
      Tensor packed = device->allocate({t.shape[0], t.columns.size()}, dtype, "test");
      Tensor other = device->allocate(t.shape, dtype, "test");
      device->copy(mine.view().columns_in(t.columns), packed);
      REQUIRE(same_bits(device->download(packed), part));
      device->copy(packed, other.view().columns_in(t.columns));
      REQUIRE(same_bits(device->download(other), wanted));
    }
}

TEST_CASE("tensors of one and of four dimensions are transferred like matrices") {
  const auto device = cuda::make_cuda_device({});
  for (const Shape& shape : {Shape{kMiB + 3}, Shape{5, 3, 7, 2}, Shape{9, 2, 16}}) {
    const Tensor host = numbered(shape, DType::bf16);
    const Tensor mine = device->write(host, "test");
    Tensor copied = device->allocate(shape, DType::bf16, "test");
    device->copy(mine, copied);
    REQUIRE(same_bits(device->download(copied), host));
    const Range some{2, shape[0] - 1};
    REQUIRE(same_bits(device->download(copied.view().rows_in(some)), host.view().rows_in(some)));
  }
}

TEST_CASE("weights are converted on their way to the GPU as on the CPU") {
  const auto device = cuda::make_cuda_device({});
  const auto cpu = make_cpu_device();
  Matrix m = scale(random_matrix(5, 700'001, 1), 300);
  for (const DType from : {DType::f32, DType::bf16, DType::f16})
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      INFO(name_of(from) << " to " << name_of(to));
      const Tensor host = to_tensor(m, from);
      const Tensor mine = device->upload(host, to, "weights");
      REQUIRE(mine.dtype() == to);
      REQUIRE(same_bits(device->download(mine), cpu->upload(host, to, "weights")));
    }
  // Without a wish they stay as they are in the file.
  REQUIRE(device->upload(to_tensor(m, DType::f16), {}, "weights").dtype() == DType::f16);
}

TEST_CASE("a file's tensor at any address is uploaded") {
  const auto device = cuda::make_cuda_device({});
  const Tensor host = numbered({31, 33}, DType::f32);
  std::vector<std::byte> file(static_cast<std::size_t>(host.view().bytes()) + 1);
  std::memcpy(file.data() + 1, host.view().data, file.size() - 1);
  ConstTensorView unaligned = host.view();
  unaligned.data = file.data() + 1;
  REQUIRE(same_bits(device->download(device->upload(unaligned, {}, "weights")), host));
}

TEST_CASE("values that are too large for their dtype are found in every part of an upload") {
  const auto device = cuda::make_cuda_device({});
  const std::int64_t last = 3 * kMiB - 1;
  Matrix m(1, last + 1);
  m(0, 0) = 70000, m(0, kMiB + 5) = -70000, m(0, last) = 65520;
  m(0, 1) = m(0, last - 1) = std::numeric_limits<float>::infinity();
  m(0, 2 * kMiB) = std::numeric_limits<float>::quiet_NaN();
  std::vector<CopyFindings> told;
  const std::byte* told_of = nullptr;
  device->observe_uploads([&](ConstTensorView host, const CopyFindings& findings) {
    told.push_back(findings);
    told_of = host.data;
  });
  try {
    device->upload(m.view(), DType::f16, "weights");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK_THAT(e.what(), ContainsSubstring("3 of the values of a weight [1, 3145728] are too large "
                                           "for f16"));
  }
  REQUIRE(told.size() == 1);
  REQUIRE(told_of == m.view().data);
  REQUIRE(told[0].overflowed == 3);
  REQUIRE(told[0].not_finite == 3);
  device->upload(m.view(), DType::bf16, "weights");
  REQUIRE(told.size() == 2);
  REQUIRE(told[1].overflowed == 0);
  REQUIRE(device->memory().uploaded_bytes() == 2 * m.view().bytes());
  // What is written is no weight: nobody is told, and it may overflow.
  Tensor mine = device->allocate({1, last + 1}, DType::f16, "test");
  device->write(m.view(), mine);
  REQUIRE(told.size() == 2);
  REQUIRE(device->memory().uploaded_bytes() == 2 * m.view().bytes());
}

TEST_CASE("the GPU copies only between equal shapes and dtypes") {
  const auto device = cuda::make_cuda_device({});
  Tensor a = device->allocate({2, 3}, DType::f32, "test");
  Tensor b = device->allocate({2, 3}, DType::bf16, "test");
  Tensor c = device->allocate({3, 2}, DType::f32, "test");
  REQUIRE_THROWS_WITH(device->copy(a, b), ContainsSubstring("copy: from f32 to bf16"));
  REQUIRE_THROWS_WITH(device->copy(a, c),
                      ContainsSubstring("[2, 3]") && ContainsSubstring("[3, 2]"));
}

TEST_CASE("each tag of the GPU's memory has its bytes") {
  const auto device = cuda::make_cuda_device({});
  const MemoryCounter& memory = device->memory();
  REQUIRE(memory.total_bytes() == 0);
  {
    const Tensor kv = device->allocate({3, 5, 7}, DType::bf16, "kv");
    const Tensor more = device->allocate({10}, DType::f32, "kv");
    const Tensor nothing = device->allocate({0, 10}, DType::f32, "kv");
    REQUIRE(memory.use("kv").bytes == 3 * 5 * 7 * 2 + 40);
  }
  REQUIRE(memory.use("kv").bytes == 0);
  REQUIRE(memory.use("kv").peak_bytes == 3 * 5 * 7 * 2 + 40);
  // What operations take for themselves is counted, too, and reserve says it before.
  REQUIRE(memory.use("workspace").bytes == 0);
  device->reserve({.rows = 16,
                   .context_tokens = 64,
                   .block_size = 16,
                   .input_features = 1000,
                   .query_heads = 2,
                   .head_dim = 8,
                   .logit_rows = 1,
                   .logit_columns = 1});
  const std::int64_t reserved = memory.use("workspace").bytes;
  REQUIRE(reserved >= 16 * 1000 * 2 + 4 * kMiB);  // rounded activations, and cuBLAS's own
  Tensor x = device->allocate({16, 1000}, DType::f32, "test");
  Tensor w = device->allocate({3, 1000}, DType::bf16, "test");
  Tensor y = device->allocate({16, 3}, DType::f32, "test");
  device->matmul(x, w, y, SumBlocks::whole(1000));
  REQUIRE(memory.use("workspace").bytes == reserved);
  x = device->allocate({160, 1000}, DType::f32, "test");
  y = device->allocate({160, 3}, DType::f32, "test");
  device->matmul(x, w, y, SumBlocks::whole(1000));
  REQUIRE(memory.use("workspace").bytes >= 160 * 1000 * 2 + 4 * kMiB);
}

// With a cut of the context for each multiprocessor, the most partial results may come at any
// number of sequences, not only at the largest.
TEST_CASE("reserved memory suffices for any number of sequences") {
  const auto device = cuda::make_cuda_device({});
  constexpr std::int64_t kContext = 512, kHeadDim = 8, kRows = 12;
  device->reserve({.rows = kRows,
                   .context_tokens = kContext,
                   .block_size = 16,
                   .input_features = 1,
                   .query_heads = 4,
                   .head_dim = kHeadDim,
                   .logit_rows = 1,
                   .logit_columns = 1});
  const std::vector<std::int32_t> table(kContext / 16, 0);
  Tensor pool = device->allocate({1, 1, 16, kHeadDim}, DType::bf16, "test");
  Tensor q = device->allocate({kRows, 4 * kHeadDim}, DType::f32, "test");
  Tensor y = device->allocate({kRows, 4 * kHeadDim}, DType::f32, "test");
  const std::int64_t reserved = device->memory().use("workspace").bytes;
  for (std::int64_t sequences = 1; sequences <= kRows; ++sequences) {
    Batch batch(16);
    for (std::int64_t i = 0; i < sequences; ++i) batch.add(table, kContext - 1, 1);
    const Range rows{0, sequences};
    device->begin_step(batch.view(), {}, {});
    device->attention(q.view().rows_in(rows), {pool, pool}, {{0, 4}, {0, 1}, 4}, batch.view(),
                      y.view().rows_in(rows));
    INFO(sequences << " sequences");
    REQUIRE(device->memory().use("workspace").bytes == reserved);
  }
}

TEST_CASE("memory that the GPU has not is refused with its purpose and size") {
  const auto device = cuda::make_cuda_device({});
  try {
    device->allocate({std::int64_t{1} << 20, std::int64_t{1} << 24}, DType::f32, "kv cache");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::rank);
    CHECK_THAT(e.what(), ContainsSubstring("kv cache: there is no memory for 70368744177664 bytes, "
                                           "shape [1048576, 16777216]"));
  }
  REQUIRE(device->memory().use("kv cache").bytes == 0);
  const Tensor host = numbered({3, 4}, DType::f32);
  REQUIRE(same_bits(device->download(device->write(host, "test")), host));  // it works as before
}

TEST_CASE("there is no GPU with a number that is too large") {
  try {
    cuda::make_cuda_device({.gpu = 1000});
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK_THAT(e.what(), ContainsSubstring("cudaSetDevice(1000)"));
  }
}

// In a process of its own, whose emulated GPUs have 64 MiB.
TEST_CASE("ranks share a small emulated GPU as they are told", "[.memory_64]") {
  const auto alone = cuda::make_cuda_device({.gpu = 1, .memory_utilization = 0.5});
  REQUIRE(alone->free_bytes() == 32 * kMiB);
  const Tensor weights = alone->allocate({5 * kMiB}, DType::f32, "weights");
  REQUIRE(alone->free_bytes() == 12 * kMiB);
  const Tensor kv = alone->allocate({5 * kMiB}, DType::f32, "kv");  // more than its part
  REQUIRE(alone->free_bytes() == 0);
  REQUIRE_THROWS_WITH(alone->allocate({8 * kMiB}, DType::f32, "more"),
                      ContainsSubstring("more: there is no memory for 33554432 bytes"));

  const cuda::CudaDeviceOptions quarter{.gpu = 0, .memory_utilization = 1, .ranks_on_gpu = 4};
  const auto first = cuda::make_cuda_device(quarter), second = cuda::make_cuda_device(quarter);
  REQUIRE(first->free_bytes() == 16 * kMiB);
  const Tensor mine = first->allocate({3 * kMiB}, DType::f32, "kv");
  REQUIRE(first->free_bytes() == 4 * kMiB);
  REQUIRE(second->free_bytes() == 13 * kMiB);  // a quarter of what is still free
}

// What a device refuses, and how it counts its memory.
#include "common/device/device.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

TEST_CASE("matmul refuses shapes that do not fit and names both sides") {
  const auto device = make_cpu_device();
  Matrix x(2, 5), w(3, 5), y(2, 3);
  const SumBlocks blocks = SumBlocks::whole(5);
  REQUIRE_THROWS_WITH(
      device->matmul(x.view(), Matrix(3, 4).view(), y.view(), blocks),
      ContainsSubstring("matmul: columns of x = 5") && ContainsSubstring("columns of weight = 4"));
  REQUIRE_THROWS_WITH(
      device->matmul(x.view(), w.view(), Matrix(3, 2).view(), blocks),
      ContainsSubstring("shape of x W^T is [2, 3]") && ContainsSubstring("shape of y is [3, 2]"));
  REQUIRE_THROWS_WITH(
      device->matmul(x.view(), w.view(), y.view(), SumBlocks::whole(6)),
      ContainsSubstring("end of the last sum block = 6") && ContainsSubstring("columns of x = 5"));
}

TEST_CASE("matmul refuses dtypes it cannot compute with, by name") {
  const auto device = make_cpu_device();
  Matrix x(2, 5), w(3, 5), y(2, 3);
  const SumBlocks blocks = SumBlocks::whole(5);
  REQUIRE_THROWS_WITH(
      device->matmul(x.view(), Tensor::on_host({3, 5}, DType::i32), y.view(), blocks),
      ContainsSubstring("matmul") && ContainsSubstring("the weight is i32"));
  REQUIRE_THROWS_WITH(
      device->matmul(Tensor::on_host({2, 5}, DType::bf16), w.view(), y.view(), blocks),
      ContainsSubstring("x is bf16") && ContainsSubstring("activations are f32"));
  REQUIRE_THROWS_WITH(
      device->matmul(x.view(), w.view(), Tensor::on_host({2, 3}, DType::bf16), blocks),
      ContainsSubstring("y is bf16") && ContainsSubstring("activations are f32"));
}

TEST_CASE("the other operations refuse shapes that do not fit and name both sides") {
  const auto device = make_cpu_device();
  Matrix x(2, 6), narrow(2, 5), bias(1, 5);
  REQUIRE_THROWS_WITH(
      device->add_bias(x.view(), bias.view()),
      ContainsSubstring("columns of x = 6") && ContainsSubstring("elements of bias = 5"));
  REQUIRE_THROWS_WITH(device->add(x.view(), narrow.view()),
                      ContainsSubstring("x is [2, 6]") && ContainsSubstring("y is [2, 5]"));
  REQUIRE_THROWS_WITH(device->gated_activation(x.view(), narrow.view(), x.view(), Activation::silu),
                      ContainsSubstring("gate is [2, 6]") && ContainsSubstring("up is [2, 5]"));
  REQUIRE_THROWS_WITH(device->gated_activation(x.view(), x.view(), narrow.view(), Activation::silu),
                      ContainsSubstring("gate is [2, 6]") && ContainsSubstring("y is [2, 5]"));
  REQUIRE_THROWS_WITH(
      device->rms_norm(x.view(), bias.view(), 0, x.view()),
      ContainsSubstring("columns of x = 6") && ContainsSubstring("elements of weight = 5"));
  REQUIRE_THROWS_WITH(device->rms_norm_heads(x.view(), bias.view(), 0),
                      ContainsSubstring("rms_norm_heads: columns of x = 6") &&
                          ContainsSubstring("heads * elements of weight = 5"));
  REQUIRE_THROWS_WITH(device->rms_norm_heads(x.view(), Tensor::on_host({0}), 0),
                      ContainsSubstring("heads * elements of weight = 0"));
  REQUIRE_THROWS_WITH(
      device->activate(Tensor::on_host({2, 2}, DType::i32), Activation::gelu),
      ContainsSubstring("activate: x is i32") && ContainsSubstring("activations are f32"));

  const std::vector<std::int32_t> ids{1, 2};
  REQUIRE_THROWS_WITH(
      device->embed(ids, Matrix(4, 6).view(), {0, 5}, x.view()),
      ContainsSubstring("rows of the table = 4") && ContainsSubstring("ids of the shard = 5"));
  REQUIRE_THROWS_WITH(device->embed(ids, Matrix(5, 4).view(), {0, 5}, x.view()),
                      ContainsSubstring("is [2, 4]") && ContainsSubstring("shape of y is [2, 6]"));

  const RopeTable table(*device, 3, 4, 10000);
  const std::vector<std::int32_t> positions{2, 3};
  REQUIRE_THROWS_WITH(device->rope(x.view(), table, positions),
                      ContainsSubstring("modulo head_dim = 2") && ContainsSubstring("= 0"));
  REQUIRE_THROWS_WITH(device->rope(Matrix(2, 8).view(), table, positions),
                      ContainsSubstring("rope: position 3 is not in 0 to 2"));
  REQUIRE_THROWS_WITH(device->rope(Matrix(3, 8).view(), table, positions),
                      ContainsSubstring("rows of x = 3") && ContainsSubstring("positions = 2"));
  REQUIRE_THROWS_WITH(device->select_rows(Matrix(3, 6).view(), positions, x.view()),
                      ContainsSubstring("select_rows: row 3 is not in 0 to 2"));
}

TEST_CASE("memory is counted by tag until the tensors are destroyed") {
  const auto device = make_cpu_device();
  REQUIRE(device->memory().use("kv").bytes == 0);
  {
    Tensor kept;
    {
      const Tensor first = device->allocate({3, 5}, DType::f32, "kv");
      const Tensor second = device->allocate({3, 5}, DType::bf16, "kv");
      const Tensor other = device->allocate({7}, DType::i32, "ids");
      REQUIRE(device->memory().use("kv").bytes == 60 + 30);
      REQUIRE(device->memory().use("ids").bytes == 28);
      kept = device->allocate({1}, DType::f32, "kv");
    }
    REQUIRE(device->memory().use("kv").bytes == 4);
    REQUIRE(device->memory().use("kv").peak_bytes == 94);
    Tensor moved = std::move(kept);  // a move counts nothing
    REQUIRE(device->memory().use("kv").bytes == 4);
  }
  REQUIRE(device->memory().use("kv").bytes == 0);
  REQUIRE(device->memory().use("kv").peak_bytes == 94);
  REQUIRE(device->memory().use("ids").bytes == 0);
  REQUIRE(device->memory().uses().size() == 2);
}

TEST_CASE("a tensor may outlive its device") {
  auto device = make_cpu_device();
  Tensor tensor = device->allocate({4}, DType::f32, "kv");
  device.reset();
  tensor.row<float>(0)[3] = 1;
  REQUIRE(tensor.row<float>(0)[3] == 1);
}

TEST_CASE("new tensors are zero and begin on a cache line") {
  const auto device = make_cpu_device();
  for (const std::int64_t elements : {0, 1, 15, 1000}) {
    Tensor tensor = device->allocate({elements}, DType::f32, "activations");
    REQUIRE(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64 == 0);
    for (std::int64_t i = 0; i < elements; ++i) {
      REQUIRE(tensor.row<float>(0)[i] == 0);
      tensor.row<float>(0)[i] = 1;  // the next tensor may get this memory
    }
  }
}

TEST_CASE("upload refuses to make a finite value infinite and tells an observer what it met") {
  const auto device = make_cpu_device();
  Tensor stored = Tensor::on_host({2, 3});
  stored.row<float>(0)[1] = 3.4e38f;
  stored.row<float>(1)[0] = stored.row<float>(1)[1] = std::numeric_limits<float>::infinity();
  REQUIRE_THROWS_WITH(device->upload(stored, DType::bf16, "weights"),
                      ContainsSubstring("1 of the values") && ContainsSubstring("[2, 3]") &&
                          ContainsSubstring("too large for bf16"));

  std::vector<CopyFindings> seen;
  device->observe_uploads([&](ConstTensorView host, const CopyFindings& findings) {
    REQUIRE(host.data == stored.view().data);
    seen.push_back(findings);
  });
  device->upload(stored, std::nullopt, "weights");
  REQUIRE_THROWS_AS(device->upload(stored, DType::bf16, "weights"), Error);
  REQUIRE(seen.size() == 2);
  REQUIRE(seen[0].not_finite == 2);
  REQUIRE(seen[0].overflowed == 0);
  REQUIRE(seen[1].overflowed == 1);
  device->observe_uploads({});
  device->upload(stored, std::nullopt, "weights");
  REQUIRE(seen.size() == 2);
}

TEST_CASE("large tensors are zero and writable to their last byte") {
  const auto device = make_cpu_device();
  for (const std::int64_t elements : {(1 << 19) - 1, 1 << 19, (1 << 20) + 12345}) {  // 2 MiB, 4 MiB
    Tensor tensor = device->allocate({2, elements}, DType::f32, "weights");
    REQUIRE(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64 == 0);
    REQUIRE(tensor.row<float>(1)[elements - 1] == 0);
    Tensor ones = Tensor::on_host({1, elements});
    std::fill_n(ones.row<float>(0), elements, 1.0f);
    device->upload(ones, tensor.view().rows_in({1, 2}));
    REQUIRE(tensor.row<float>(0)[elements - 1] == 0);
    REQUIRE(tensor.row<float>(1)[elements - 1] == 1);
  }
}

TEST_CASE("upload counts the bytes that are read and converts where the dtypes differ") {
  const auto device = make_cpu_device();
  Tensor stored = Tensor::on_host({2, 3}, DType::f16);
  stored.row<f16>(1)[2] = {0x3e00};  // 1.5

  const Tensor widened = device->upload(stored, std::nullopt, "weights");
  REQUIRE(widened.dtype() == DType::f32);  // unless f16 is asked for
  REQUIRE(widened.row<float>(1)[2] == 1.5f);
  REQUIRE(device->memory().uploaded_bytes() == 12);
  REQUIRE(device->memory().use("weights").bytes == 24);

  const Tensor narrowed = device->upload(stored, DType::bf16, "weights");
  REQUIRE(narrowed.row<bf16>(1)[2] == to_bf16(1.5f));
  REQUIRE(device->memory().uploaded_bytes() == 24);
  REQUIRE(device->memory().use("weights").bytes == 24 + 12);

  const Tensor as_is = device->upload(narrowed, std::nullopt, "weights");
  REQUIRE(as_is.dtype() == DType::bf16);
  REQUIRE_THROWS_AS(device->upload(stored, device->allocate({3, 2}, DType::f32, "weights").view()),
                    Error);
}

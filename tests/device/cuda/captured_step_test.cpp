// Steps that are captured and replayed: with other tokens, positions, blocks and contexts a replay
// has the bits of a step that runs operation by operation.
#include <functional>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/rope_table.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

constexpr std::int64_t kHidden = 32, kHeadDim = 8, kQueryHeads = 4, kKvHeads = 2, kVocab = 50,
                       kBlockSize = 4, kBlocks = 64, kPositions = 160;
constexpr std::int64_t kMostSequences = 4;
constexpr StepLimits kLimits{.rows = 16,
                             .context_tokens = kPositions,
                             .block_size = kBlockSize,
                             .input_features = kHidden,
                             .query_heads = kQueryHeads,
                             .head_dim = kHeadDim,
                             .logit_rows = kMostSequences,
                             .logit_columns = kVocab};

// One new token of each sequence. Everything in it differs with the seed.
struct DecodeStep {
  DecodeStep(std::int64_t sequences, std::int64_t seed) {
    tables.resize(static_cast<std::size_t>(sequences));
    for (std::int64_t i = 0; i < sequences; ++i) {
      const std::int64_t context = 1 + (37 * i + 53 * seed) % kPositions;
      auto& table = tables[static_cast<std::size_t>(i)];
      for (std::int64_t b = 0; b < blocks_for(context, kBlockSize); ++b)
        table.push_back(static_cast<std::int32_t>((7 * b + 11 * i + 3 * seed) % kBlocks));
      batch.add(table, context - 1, 1);
      ids.push_back(static_cast<std::int32_t>((5 * i + 13 * seed) % kVocab));
      logit_rows.push_back(static_cast<std::int32_t>(i));
    }
  }
  std::vector<std::vector<std::int32_t>> tables;
  Batch batch{kBlockSize};
  std::vector<std::int32_t> ids, logit_rows;
};

// A decoder of one layer without an MLP.
class MiniDecoder {
 public:
  explicit MiniDecoder(DType dtype = DType::bf16)
      : embedding_(weight(kVocab, kHidden, 1, dtype)),
        q_weight_(weight(kQueryHeads * kHeadDim, kHidden, 2, dtype)),
        kv_weight_(weight(kKvHeads * kHeadDim, kHidden, 3, dtype)),
        o_weight_(weight(kHidden, kQueryHeads * kHeadDim, 4, dtype)),
        norm_(device->upload(to_tensor(random_matrix(1, kHidden, 5), dtype), {}, "weights")),
        rope_(*device, kPositions, kHeadDim, 10000),
        keys_(pool(6, dtype)),
        values_(pool(7, dtype)) {}

  void begin(const DecodeStep& step) {
    device->begin_step(step.batch.view(), step.ids, step.logit_rows);
  }
  // The operations; the logits of `step` in logits().
  void forward(const DecodeStep& step) {
    const std::int64_t n = std::ssize(step.ids);
    const Range rows{0, n};
    const auto part = [&](Tensor& t) { return t.view().rows_in(rows); };
    const KvLayer cache{keys_, values_};
    const SumBlocks blocks = SumBlocks::whole(kHidden);
    device->embed(step.ids, embedding_, {0, kVocab}, part(x_));
    device->matmul(part(x_), q_weight_, part(q_), blocks);
    device->matmul(part(x_), kv_weight_, part(k_), blocks);
    device->matmul(part(x_), kv_weight_, part(v_), blocks);
    device->rope_and_store_kv(part(q_), part(k_), part(v_), rope_, step.batch.view(), cache);
    device->attention(part(q_), cache, {{0, kQueryHeads}, {0, kKvHeads}, 2}, step.batch.view(),
                      part(attention_));
    device->matmul(part(attention_), o_weight_, part(projected_),
                   SumBlocks::whole(kQueryHeads * kHeadDim));
    ConstTensorView norm = norm_.view();
    norm.shape = {kHidden};
    device->add_rms_norm(part(x_), part(projected_), norm, 1e-5f, part(normed_));
    device->select_rows(part(normed_), step.logit_rows, part(selected_));
    device->matmul(part(selected_), embedding_, part(logits_), blocks);
  }
  // The logits, which are forgotten then.
  Tensor take_logits(const DecodeStep& step) {
    const TensorView rows = logits_.view().rows_in({0, std::ssize(step.ids)});
    Tensor taken = device->download(rows);
    device->write(Matrix(rows.rows(), kVocab).view(), rows);
    return taken;
  }
  Tensor cache() { return device->download(keys_); }

  std::unique_ptr<CapturedStep> capture(const DecodeStep& step) {
    device->begin_capture();
    try {
      forward(step);
      return device->end_capture();
    } catch (...) {
      device->abandon_capture();
      throw;
    }
  }

  std::unique_ptr<cuda::CudaDevice> device = cuda::make_cuda_device({});

 private:
  Tensor weight(std::int64_t out, std::int64_t in, std::uint64_t seed, DType dtype) {
    return device->upload(random_matrix(out, in, seed).view(), dtype, "weights");
  }
  Tensor pool(std::uint64_t seed, DType dtype) {
    Tensor memory = device->allocate({kBlocks, kKvHeads, kBlockSize, kHeadDim}, dtype, "kv");
    TensorView flat = memory.view();
    flat.shape = {kBlocks, kKvHeads * kBlockSize * kHeadDim};
    device->write(random_matrix(kBlocks, flat.row_elements(), seed).view(), flat);
    return memory;
  }
  Tensor rows(std::int64_t columns) {
    return device->allocate({kMostSequences, columns}, DType::f32, "activations");
  }

  Tensor embedding_, q_weight_, kv_weight_, o_weight_, norm_;
  RopeTable rope_;
  Tensor keys_, values_;
  Tensor x_ = rows(kHidden), q_ = rows(kQueryHeads * kHeadDim), k_ = rows(kKvHeads * kHeadDim),
         v_ = rows(kKvHeads * kHeadDim), attention_ = rows(kQueryHeads * kHeadDim),
         projected_ = rows(kHidden), normed_ = rows(kHidden), selected_ = rows(kHidden),
         logits_ = rows(kVocab);
};

// [2, 8] of one value.
Matrix filled_with(float value) {
  return {2, 8, std::vector<float>(16, value)};
}

void require_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::rank);
    CHECK_THAT(e.what(), ContainsSubstring(words));
  }
}

}  // namespace

TEST_CASE("a replay has the bits of the operations one by one") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    MiniDecoder captured(dtype), eager(dtype);
    for (MiniDecoder* decoder : {&captured, &eager}) decoder->device->reserve(kLimits);
    const DecodeStep first(3, 0);
    captured.begin(first);
    const auto step = captured.capture(first);
    REQUIRE(same_bits(captured.take_logits(first), Tensor::on_host({3, kVocab})));  // only recorded
    for (std::int64_t seed = 0; seed < 8; ++seed) {
      const DecodeStep now(3, seed);
      captured.begin(now);
      captured.device->replay(*step);
      eager.begin(now);
      eager.forward(now);
      INFO(name_of(dtype) << ", step " << seed);
      const Tensor wanted = eager.take_logits(now);
      REQUIRE(same_bits(captured.take_logits(now), wanted));
      REQUIRE_FALSE(same_bits(wanted, Tensor::on_host({3, kVocab})));
      REQUIRE(same_bits(captured.cache(), eager.cache()));
    }
  }
}

TEST_CASE("captured steps of several sizes take turns, and with steps one by one") {
  MiniDecoder captured, eager;
  for (MiniDecoder* decoder : {&captured, &eager}) decoder->device->reserve(kLimits);
  std::vector<std::unique_ptr<CapturedStep>> steps;
  for (std::int64_t n = 1; n <= kMostSequences; ++n) {
    const DecodeStep any(n, 20 + n);
    captured.begin(any);
    steps.push_back(captured.capture(any));
  }
  for (std::int64_t seed = 0; seed < 12; ++seed) {
    const std::int64_t n = 1 + (seed * 3) % kMostSequences;
    const DecodeStep now(n, seed);
    captured.begin(now);
    if (seed % 4 == 3)
      captured.forward(now);
    else
      captured.device->replay(*steps[static_cast<std::size_t>(n - 1)]);
    eager.begin(now);
    eager.forward(now);
    INFO("step " << seed << ", sequences " << n);
    REQUIRE(same_bits(captured.take_logits(now), eager.take_logits(now)));
  }
}

TEST_CASE("replays follow each other without waiting for the GPU") {
  MiniDecoder captured, eager;
  for (MiniDecoder* decoder : {&captured, &eager}) decoder->device->reserve(kLimits);
  const DecodeStep first(2, 0), last(2, 5);
  captured.begin(first);
  const auto step = captured.capture(first);
  for (std::int64_t seed = 1; seed <= 5; ++seed) {
    const DecodeStep now(2, seed);
    captured.begin(now);
    captured.device->replay(*step);
    eager.begin(now);
    eager.forward(now);
    eager.device->synchronize();
  }
  REQUIRE(same_bits(captured.take_logits(last), eager.take_logits(last)));
  REQUIRE(same_bits(captured.cache(), eager.cache()));
}

TEST_CASE("a captured step has one operation for each kernel") {
  const auto device = cuda::make_cuda_device({});
  Tensor x = device->allocate({2, 8}, DType::f32, "test"),
         y = device->allocate({2, 8}, DType::f32, "test");
  for (int count = 0; count < 4; ++count) {
    device->begin_capture();
    for (int i = 0; i < count; ++i) device->add(x, y);
    const auto step = device->end_capture();
    REQUIRE(step->operations() == count);
  }
  // Each replay computes once more.
  device->write(filled_with(1).view(), y);
  device->begin_capture();
  device->add(x, y);
  device->add(x, y);
  const auto step = device->end_capture();
  for (int i = 0; i < 3; ++i) device->replay(*step);
  REQUIRE(same_bits(device->download(x), filled_with(6).view()));
}

TEST_CASE("a matrix product can be the first work of a device and be captured at once") {
  const auto device = cuda::make_cuda_device({});
  const Matrix weight(3, 8, std::vector<float>(24, 2.0f));
  const Tensor x = device->upload(filled_with(1).view(), DType::f32, "test");
  const Tensor w = device->upload(weight.view(), DType::f32, "test");
  Tensor y = device->allocate({2, 3}, DType::f32, "test");
  device->begin_capture();
  device->matmul(x, w, y, SumBlocks::whole(8));
  const auto step = device->end_capture();
  device->replay(*step);
  REQUIRE(same_bits(device->download(y), Matrix(2, 3, std::vector<float>(6, 16.0f)).view()));
}

TEST_CASE("integers that are not the step's own cannot be captured") {
  MiniDecoder decoder;
  decoder.device->reserve(kLimits);
  const DecodeStep announced(2, 0), other(2, 1);
  decoder.begin(announced);
  require_refused([&] { decoder.capture(other); },
                  "a step is captured that uses integers which are not the step's own; give them "
                  "to begin_step");
}

TEST_CASE("a step that has had no memory before cannot be captured") {
  MiniDecoder decoder;  // without reserve, and without a step before
  const DecodeStep step(2, 0);
  decoder.begin(step);
  require_refused([&] { decoder.capture(step); },
                  "an operation needs a workspace of 128 bytes, but 0 are reserved, and captured "
                  "steps know where they are");
}

TEST_CASE("a step that has run once can be captured without reserve") {
  MiniDecoder captured, eager;
  const DecodeStep first(3, 4), second(3, 4);
  captured.begin(first);
  captured.forward(first);
  captured.take_logits(first);
  captured.begin(second);
  const auto step = captured.capture(second);
  captured.device->replay(*step);
  eager.begin(second);
  eager.forward(second);
  REQUIRE(same_bits(captured.take_logits(second), eager.take_logits(second)));
}

TEST_CASE("after a capture neither the workspace nor the arrays may grow") {
  MiniDecoder decoder;
  const DecodeStep step(1, 0);
  decoder.begin(step);
  decoder.forward(step);
  decoder.begin(step);
  const auto captured = decoder.capture(step);
  Device& device = *decoder.device;
  Tensor x = device.allocate({16, 4096}, DType::f32, "test");
  Tensor w = device.allocate({1, 4096}, DType::bf16, "test");
  Tensor y = device.allocate({16, 1}, DType::f32, "test");
  require_refused([&] { device.matmul(x, w, y, SumBlocks::whole(4096)); },
                  "an operation needs a workspace of 131072 bytes, but ");
  const std::vector<std::int32_t> many(5000, 1);
  require_refused([&] { device.begin_step({}, many, {}); },
                  "the arrays of a step need 5000 integers, but ");
  // What there is still works.
  decoder.begin(step);
  device.replay(*captured);
  REQUIRE_FALSE(same_bits(decoder.take_logits(step), Tensor::on_host({1, kVocab})));
}

TEST_CASE("transfers between the host and the GPU cannot be captured") {
  const auto device = cuda::make_cuda_device({});
  Tensor x = device->allocate({2, 8}, DType::f32, "test");
  device->download(x);
  device->begin_capture();
  require_refused([&] { device->write(filled_with(1).view(), x); },
                  "a step is captured that writes a tensor of the host");
  require_refused([&] { device->download(x); }, "a step is captured that downloads");
  std::vector<std::int32_t> columns(2);
  require_refused([&] { device->synchronize(); }, "a step is captured that waits");
  device->end_capture();
  device->write(filled_with(1).view(), x);
  REQUIRE(same_bits(device->download(x), filled_with(1).view()));
}

// Else memory that is given back while the error is handled would be lost, and a call of somebody
// else would fail for it.
TEST_CASE("after a capture that failed the GPU works as before") {
  MiniDecoder decoder, eager;
  for (MiniDecoder* d : {&decoder, &eager}) d->device->reserve(kLimits);
  const DecodeStep announced(2, 0), other(2, 1);
  decoder.begin(announced);
  std::size_t before = 0, after = 0, total = 0;
  const auto fail = [&] {
    const Tensor memory = decoder.device->allocate({1 << 20}, DType::f32, "test");
    REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
    decoder.capture(other);
  };
  require_refused(fail, "give them to begin_step");
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  REQUIRE(after >= before + (4u << 20));
  const auto step = decoder.capture(announced);
  decoder.begin(other);
  decoder.device->replay(*step);
  eager.begin(other);
  eager.forward(other);
  REQUIRE(same_bits(decoder.take_logits(other), eager.take_logits(other)));
}

TEST_CASE("the CPU device says that it captures nothing") {
  const auto cpu = make_cpu_device();
  REQUIRE_FALSE(cpu->can_capture());
  require_refused([&] { cpu->begin_capture(); }, "this device cannot capture steps");
  require_refused([&] { cpu->end_capture(); }, "this device cannot capture steps");
}

// Attention split by heads: each rank's heads and the sum, against all heads on one device.
#include "common/parallel/sharded_attention.h"

#include <array>
#include <numeric>
#include <vector>

#include "common/core/compare.h"
#include "common/core/matrix.h"
#include "common/parallel/compare_ranks.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"
#include "tests/device/test_tensors.h"

using namespace tp;

namespace {

struct Sizes {
  std::int64_t hidden, heads, kv_heads, head_dim;
};

// A KV head for each query head; one for two, four and six of them; one for all. 12 heads are
// uneven on 8 ranks, which still have whole sum blocks.
const std::vector<Sizes> kSizes = {
    {50, 8, 8, 6}, {50, 8, 4, 12}, {34, 8, 2, 10}, {30, 12, 2, 4}, {20, 8, 1, 6}};

// Tokens of the sequences of one batch, and the longest of them.
constexpr std::array<std::int64_t, 3> kTokens{4, 1, 6};
constexpr std::int64_t kLongest = 6;
constexpr std::array<std::int32_t, 3> kBlocks{0, 1, 2};

// A cache with one block per sequence.
struct Cache {
  Cache(Device& device, std::int64_t kv_heads, std::int64_t head_dim)
      : keys(device.allocate({3, kv_heads, kLongest, head_dim}, DType::f32, "kv")),
        values(device.allocate({3, kv_heads, kLongest, head_dim}, DType::f32, "kv")) {}
  KvLayer layer() { return {keys.view(), values.view()}; }

  Tensor keys, values;
};

std::span<const std::int32_t> block_of(std::size_t sequence) {
  return std::span(kBlocks).subspan(sequence, 1);
}

// Memory for the results on the way.
struct Steps {
  Steps(Device& device, std::int64_t rows, std::int64_t q_width, std::int64_t kv_width)
      : q(device.allocate({rows, q_width}, DType::f32, "activations")),
        k(device.allocate({rows, kv_width}, DType::f32, "activations")),
        v(device.allocate({rows, kv_width}, DType::f32, "activations")),
        attention(device.allocate({rows, q_width}, DType::f32, "activations")) {}
  AttentionSteps view() { return {q, k, v, attention}; }

  Tensor q, k, v, attention;
};

struct Problem {
  Problem(const Sizes& s, bool with_biases, bool integers = false)
      : sizes(s),
        biased(with_biases),
        x(make(integers)(
            std::accumulate(kTokens.begin(), kTokens.end(), std::int64_t{0}), s.hidden, 1)),
        q(make(integers)(s.heads * s.head_dim, s.hidden, 2)),
        k(make(integers)(s.kv_heads * s.head_dim, s.hidden, 3)),
        v(make(integers)(s.kv_heads * s.head_dim, s.hidden, 4)),
        o(make(integers)(s.hidden, s.heads * s.head_dim, 5)),
        q_bias(make(integers)(1, q.rows, 6)),
        k_bias(make(integers)(1, k.rows, 7)),
        v_bias(make(integers)(1, v.rows, 8)),
        o_bias(make(integers)(1, o.rows, 9)),
        q_norm(make(integers)(1, s.head_dim, 10)),
        k_norm(make(integers)(1, s.head_dim, 11)) {}

  static Matrix (*make(bool integers))(std::int64_t, std::int64_t, std::uint64_t) {
    return integers ? random_integers : random_matrix;
  }

  WholeAttention whole() const {
    const auto layer = [&](const Matrix& weight, const Matrix& bias) {
      return WholeLinear{weight.view(), biased ? bias.view() : ConstTensorView{}, {}};
    };
    WholeAttention whole{layer(q, q_bias), layer(k, k_bias), layer(v, v_bias), layer(o, o_bias)};
    if (normed) {
      whole.q_norm = q_norm.view();
      whole.k_norm = k_norm.view();
      whole.norm_eps = 1e-2f;
    }
    whole.window = window;
    return whole;
  }

  // All tokens of all sequences at once, in the order of the rows of x.
  Batch prefill() const {
    Batch batch(kLongest);
    for (std::size_t s = 0; s < kTokens.size(); ++s) batch.add(block_of(s), 0, kTokens[s]);
    return batch;
  }

  Sizes sizes;
  bool biased;
  bool normed = false;  // each head of q and k
  std::int64_t window = kNoWindow;
  Matrix x, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
};

// As in a llama, with biases, and with all that other families add.
std::vector<Problem> variants(const Sizes& sizes) {
  std::vector<Problem> all{Problem(sizes, false), Problem(sizes, true), Problem(sizes, true)};
  all.back().normed = true;
  all.back().window = 3;
  return all;
}

// What one device computes, with whole weights and all heads.
struct OneDevice {
  explicit OneDevice(const Problem& p)
      : device(make_cpu_device()),
        steps(*device, p.x.rows, p.q.rows, p.k.rows),
        y(p.x.rows, p.sizes.hidden) {
    const auto linear = [&](ConstTensorView x, const WholeLinear& layer, TensorView out,
                            std::int64_t unit) {
      device->matmul(x, layer.weight, out, SumBlocks::whole(x.shape[1], unit));
      if (layer.bias.data != nullptr) device->add_bias(out, layer.bias);
    };
    const Sizes& s = p.sizes;
    const WholeAttention whole = p.whole();
    const RopeTable rope(*device, kLongest, s.head_dim, 10000);
    Cache cache(*device, s.kv_heads, s.head_dim);
    const Batch batch = p.prefill();
    linear(p.x.view(), whole.q, steps.q, 1);
    linear(p.x.view(), whole.k, steps.k, 1);
    linear(p.x.view(), whole.v, steps.v, 1);
    if (p.normed) {
      device->rms_norm_heads(steps.q, whole.q_norm, whole.norm_eps);
      device->rms_norm_heads(steps.k, whole.k_norm, whole.norm_eps);
    }
    device->rope(steps.q, rope, batch.view().positions);
    device->rope(steps.k, rope, batch.view().positions);
    device->store_kv(steps.k, steps.v, batch.view().slot_mapping, cache.layer());
    device->attention(steps.q, cache.layer(), {{0, s.heads}, {0, s.kv_heads}, s.heads / s.kv_heads},
                      batch.view(), steps.attention, whole.window);
    linear(steps.attention, whole.o, y.view(), s.head_dim);
  }

  std::unique_ptr<Device> device;
  Steps steps;
  Matrix y;
};

Launch launch_of(int tp_size) {
  Launch launch;
  launch.tp_size = tp_size;
  return launch;
}

ShardedAttention load(const RankContext& ctx, const Problem& p) {
  return ShardedAttention::load(ctx, p.whole(),
                                head_shard(p.sizes.heads, p.sizes.kv_heads, ctx.rank, ctx.tp_size),
                                p.sizes.head_dim);
}

// Prefill on tp_size ranks.
std::vector<RankOutput> run_split(const Problem& p, int tp_size) {
  return run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    const ShardedAttention attention = load(ctx, p);
    const RopeTable rope(ctx.device, kLongest, p.sizes.head_dim, 10000);
    Cache cache(ctx.device, attention.heads.kv.size(), p.sizes.head_dim);
    Steps steps(ctx.device, p.x.rows, attention.q_local(), attention.kv_local());
    Tensor y = ctx.device.allocate({p.x.rows, p.sizes.hidden}, DType::f32, "activations");
    const Batch batch = p.prefill();
    const PartialSum partial =
        attention.partial(ctx, p.x.view(), rope, batch.view(), cache.layer(), steps.view(), y);
    const auto calls = static_cast<float>(ctx.comm.ledger().total().calls);
    out.keep("calls before the sum", view_of(&calls, {1}));
    out.keep("q", steps.q);
    out.keep("k", steps.k);
    out.keep("v", steps.v);
    out.keep("attention", steps.attention);
    out.keep("y", attention.o.finish(ctx, partial, "o_proj"));
  });
}

}  // namespace

TEST_CASE("each rank computes its heads with the bits of one device") {
  for (const Sizes& sizes : kSizes) {
    for (const Problem& problem : variants(sizes)) {
      OneDevice one(problem);
      const AttentionSteps whole = one.steps.view();
      for (int tp_size = 1; tp_size <= 8; ++tp_size) {
        const auto ranks = run_split(problem, tp_size);
        for (int r = 0; r < tp_size; ++r) {
          INFO(sizes.heads << " heads, " << sizes.kv_heads << " KV heads, rank " << r << " of "
                           << tp_size);
          const HeadShard heads = head_shard(sizes.heads, sizes.kv_heads, r, tp_size);
          const std::int64_t d = sizes.head_dim;
          const Range query{heads.query.begin * d, heads.query.end * d};
          const Range kv{heads.kv.begin * d, heads.kv.end * d};
          const RankOutput& rank = ranks[static_cast<std::size_t>(r)];
          CHECK(same_bits(rank.tensor("q"), whole.q.columns_in(query)));
          CHECK(same_bits(rank.tensor("k"), whole.k.columns_in(kv)));
          CHECK(same_bits(rank.tensor("v"), whole.v.columns_in(kv)));
          CHECK(same_bits(rank.tensor("attention"), whole.attention.columns_in(query)));
        }
      }
    }
  }
}

TEST_CASE("the sum over the heads of all ranks has the bits of one device where tp divides 8") {
  for (const Sizes& sizes : kSizes) {
    for (const Problem& problem : variants(sizes)) {
      const OneDevice one(problem);
      for (const int tp_size : {1, 2, 4, 8}) {
        INFO(sizes.heads << " heads, " << sizes.kv_heads << " KV heads, tp " << tp_size);
        for (const RankOutput& rank : run_split(problem, tp_size))
          CHECK(same_bits(rank.tensor("y"), one.y.view()));
      }
    }
  }
}

TEST_CASE("the sum stays within the tolerance elsewhere with the same bits on all ranks") {
  for (const Sizes& sizes : kSizes) {
    for (const Problem& problem : variants(sizes)) {
      OneDevice one(problem);
      const Tolerance tolerance = Tolerance::reordered_sum(
          problem.o.cols, max_dot_magnitude(one.steps.attention, problem.o.view()));
      for (const int tp_size : {3, 5, 6, 7}) {
        INFO(sizes.heads << " heads, " << sizes.kv_heads << " KV heads, tp " << tp_size);
        const auto ranks = run_split(problem, tp_size);
        const Comparison c = compare_on_every_rank("y", ranks, "y", one.y.view(), tolerance);
        INFO(c.place);
        CHECK(c.passed);
        for (const RankOutput& rank : ranks)
          CHECK(same_bits(rank.tensor("y"), ranks[0].tensor("y")));
      }
    }
  }
}

// A token that sees only itself gives its value all the weight, so nothing is rounded.
TEST_CASE("integers of single tokens are exact on any number of ranks") {
  for (const Sizes& sizes : kSizes) {
    const Problem problem(sizes, true, true);
    const OneDevice one(problem);
    for (int tp_size = 1; tp_size <= 8; ++tp_size) {
      const auto ranks = run_split(problem, tp_size);
      std::int64_t first = 0;
      for (const std::int64_t tokens : kTokens) {
        INFO(sizes.heads << " heads, " << sizes.kv_heads << " KV heads, tp " << tp_size);
        for (const RankOutput& rank : ranks)
          CHECK(same_bits(rank.tensor("y").rows_in({first, first + 1}),
                          one.y.view().rows_in({first, first + 1})));
        first += tokens;
      }
    }
  }
}

TEST_CASE("decoding token by token has the bits of the prefill on any number of ranks") {
  const Problem problem = variants({50, 8, 4, 12}).back();
  for (const int tp_size : {1, 2, 3, 4, 8}) {
    const auto prefill = run_split(problem, tp_size);
    const auto decode = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
      const ShardedAttention attention = load(ctx, problem);
      const RopeTable rope(ctx.device, kLongest, problem.sizes.head_dim, 10000);
      Cache cache(ctx.device, attention.heads.kv.size(), problem.sizes.head_dim);
      Steps steps(ctx.device, 1, attention.q_local(), attention.kv_local());
      Matrix y(problem.x.rows, problem.sizes.hidden);
      std::int64_t row = 0;
      for (std::size_t s = 0; s < kTokens.size(); ++s) {
        for (std::int64_t position = 0; position < kTokens[s]; ++position, ++row) {
          Batch batch(kLongest);
          batch.add(block_of(s), position, 1);
          const Range here{row, row + 1};
          const PartialSum partial =
              attention.partial(ctx, problem.x.view().rows_in(here), rope, batch.view(),
                                cache.layer(), steps.view(), y.view().rows_in(here));
          attention.o.finish(ctx, partial, "o_proj");
        }
      }
      out.keep("y", y.view());
    });
    for (std::size_t r = 0; r < decode.size(); ++r) {
      INFO("rank " << r << " of " << tp_size);
      CHECK(same_bits(decode[r].tensor("y"), prefill[r].tensor("y")));
    }
  }
}

TEST_CASE("attention by heads communicates once and only behind o_proj") {
  const Problem problem({50, 8, 4, 12}, true);
  for (const RankOutput& rank : run_split(problem, 4)) {
    CHECK(rank.tensor("calls before the sum").row<float>(0)[0] == 0);
    CHECK(rank.ledger.total().calls == 1);
    CHECK(rank.ledger.total(Op::all_reduce, "o_proj").payload_bytes == problem.x.rows * 50 * 4);
  }
}

TEST_CASE("a rank allocates and reads the weights of its heads and nothing else") {
  const Problem problem = variants({50, 8, 4, 12}).back();
  for (const int tp_size : {1, 2, 3, 4, 8}) {
    const auto ranks =
        run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput&) { load(ctx, problem); });
    for (int r = 0; r < tp_size; ++r) {
      const HeadShard heads = head_shard(8, 4, r, tp_size);
      // Rows of q, k and v with their biases, columns of o, the whole bias of o, and two norms.
      const std::int64_t rows = (heads.query.size() + 2 * heads.kv.size()) * 12;
      const std::int64_t bytes = (rows * (50 + 1) + heads.query.size() * 12 * 50 + 50 + 2 * 12) * 4;
      const MemoryCounter& memory = ranks[static_cast<std::size_t>(r)].memory;
      INFO("rank " << r << " of " << tp_size);
      CHECK(memory.use("weights").peak_bytes == bytes);
      CHECK(memory.uploaded_bytes() == bytes);
    }
  }
}

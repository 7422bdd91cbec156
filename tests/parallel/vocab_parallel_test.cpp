#include "common/parallel/vocab_parallel.h"

#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/core/matrix.h"
#include "common/parallel/gather_columns.h"
#include "common/parallel/run_ranks.h"
#include "tests/catch.h"

using namespace tp;

namespace {

constexpr std::int64_t kVocab = 10;

Launch launch_of(int tp_size) {
  Launch launch;
  launch.tp_size = tp_size;
  return launch;
}

// The logits of the hidden state 1 from a head whose rows are -1, -2, ..., -10, as rank 0 gathers
// them. `valid` is what the shards take for the size of the vocabulary.
std::vector<float> gathered_logits(int tp_size, std::int64_t valid) {
  Matrix head(kVocab, 1);
  for (std::int64_t id = 0; id < kVocab; ++id) head(id, 0) = static_cast<float>(-(id + 1));
  const Matrix hidden(1, 1, {1});
  const auto ranks = run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    VocabShard shard = vocab_shard(kVocab, ctx.rank, ctx.tp_size);
    shard.valid = valid;
    const auto table = VocabParallelTable::load(ctx, head.view(), shard);
    Tensor local = Tensor::on_host({1, shard.rows.size()});
    table.logits(ctx, hidden.view(), local);
    const std::vector<Range> ranges = table.valid_ranges(ctx.tp_size);
    Tensor staging = Tensor::on_host(gather_staging_shape(1, ranges));
    Tensor whole = Tensor::on_host({1, ranges.back().end});
    const std::int64_t mine = ranges[static_cast<std::size_t>(ctx.rank)].size();
    gather_columns(ctx, local.view().columns_in({0, mine}), ranges, 0, staging, whole, "logits");
    out.keep("logits", whole);
  });
  return to_matrix(ranks[0].tensor("logits")).values;
}

std::vector<RankOutput> embedded(int tp_size, const std::vector<std::int32_t>& ids) {
  const Matrix embedding = random_matrix(kVocab, 3, 1);
  return run_ranks(launch_of(tp_size), [&](RankContext& ctx, RankOutput& out) {
    const auto table =
        VocabParallelTable::load(ctx, embedding.view(), vocab_shard(kVocab, ctx.rank, ctx.tp_size));
    Tensor y = to_tensor(random_matrix(static_cast<std::int64_t>(ids.size()), 3, 2), DType::f32);
    table.embed(ctx, ids, y, "embed_tokens");
    out.keep("y", y);
  });
}

}  // namespace

TEST_CASE("each rank holds an equal number of rows and the pads are zeros") {
  const Matrix table = random_matrix(kVocab, 5, 1);
  const auto ranks = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput& out) {
    const auto local =
        VocabParallelTable::load(ctx, table.view(), vocab_shard(kVocab, ctx.rank, 4));
    out.keep("rows", local.rows_local);
  });
  Matrix padded(12, 5);
  std::copy(table.values.begin(), table.values.end(), padded.values.begin());
  for (int r = 0; r < 4; ++r) {
    const RankOutput& rank = ranks[static_cast<std::size_t>(r)];
    CHECK(to_matrix(rank.tensor("rows")).values == padded.rows_in({3 * r, 3 * r + 3}).values);
    CHECK(rank.memory.use("weights").peak_bytes == 3 * 5 * 4);
    CHECK(rank.memory.uploaded_bytes() == (r < 3 ? 3 : 1) * 5 * 4);  // pads are read nowhere
  }
}

TEST_CASE("a shard may hold pads only") {
  // 5 ids on 4 ranks: 2 rows each, and the last rank has none of them.
  const Matrix table = random_matrix(5, 3, 1);
  const auto ranks = run_ranks(launch_of(4), [&](RankContext& ctx, RankOutput& out) {
    const auto local = VocabParallelTable::load(ctx, table.view(), vocab_shard(5, ctx.rank, 4));
    out.keep("rows", local.rows_local);
    Tensor y = Tensor::on_host({5, 3});
    local.embed(ctx, std::vector<std::int32_t>{0, 1, 2, 3, 4}, y, "embed_tokens");
    out.keep("y", y);
  });
  CHECK(to_matrix(ranks[3].tensor("rows")).values == std::vector<float>(6, 0));
  for (const RankOutput& rank : ranks) CHECK(to_matrix(rank.tensor("y")).values == table.values);
}

TEST_CASE("only the logits of real ids are gathered") {
  const std::vector<float> expected = {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10};
  for (const int tp_size : {1, 2, 3, 4, 8}) CHECK(gathered_logits(tp_size, kVocab) == expected);
}

TEST_CASE("pads that are taken for ids would win") {
  const std::vector<float> logits = gathered_logits(4, 12);
  REQUIRE(logits.size() == 12);
  CHECK(logits[10] == 0);
  CHECK(logits[11] == 0);
  CHECK(std::max_element(logits.begin(), logits.end()) - logits.begin() == 10);
}

TEST_CASE("an embedding is the same on any number of ranks") {
  const std::vector<std::int32_t> ids = {0, 5, 9};
  const Matrix embedding = random_matrix(kVocab, 3, 1);
  for (const int tp_size : {1, 2, 3, 4, 8}) {
    for (const RankOutput& rank : embedded(tp_size, ids)) {
      const Matrix y = to_matrix(rank.tensor("y"));
      CHECK(y.rows_in({0, 1}).values == embedding.rows_in({0, 1}).values);
      CHECK(y.rows_in({1, 2}).values == embedding.rows_in({5, 6}).values);
      CHECK(y.rows_in({2, 3}).values == embedding.rows_in({9, 10}).values);
      CHECK(rank.ledger.total(Op::all_reduce, "embed_tokens").payload_bytes == 3 * 3 * 4);
      CHECK(rank.ledger.total().calls == 1);
    }
  }
}

TEST_CASE("ids outside of the vocabulary are refused by number") {
  for (const int tp_size : {1, 4}) {
    // 10 is a pad of the last of four shards, not a row of zeros to be embedded.
    for (const std::int32_t id : {10, 11, 12, -1}) {
      CHECK_THROWS_WITH(embedded(tp_size, {0, id}),
                        ContainsSubstring("token id " + std::to_string(id)) &&
                            ContainsSubstring("vocabulary of 10") &&
                            ContainsSubstring("embed_tokens"));
    }
  }
}

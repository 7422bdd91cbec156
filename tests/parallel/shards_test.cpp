#include "common/parallel/shards.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

namespace {

// The KV heads that the ranks hold, each rank in brackets.
std::string kv_map(std::int64_t heads, std::int64_t kv_heads, int tp_size) {
  std::string text;
  for (int rank = 0; rank < tp_size; ++rank) {
    const HeadShard shard = head_shard(heads, kv_heads, rank, tp_size);
    text += "[";
    for (std::int64_t h = shard.kv.begin; h < shard.kv.end; ++h)
      text += (h > shard.kv.begin ? " " : "") + std::to_string(h);
    text += "]";
  }
  return text;
}

std::string refusal(const ShardedSizes& sizes, int tp_size, bool uneven = false) {
  try {
    check_tp_size(sizes, tp_size, uneven);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every query head is on one rank and finds its KV head there") {
  for (std::int64_t heads = 1; heads <= 32; ++heads) {
    for (std::int64_t kv_heads = 1; kv_heads <= heads; ++kv_heads) {
      if (heads % kv_heads != 0) continue;
      const std::int64_t group = heads / kv_heads;
      for (int tp_size = 1; tp_size <= heads; ++tp_size) {
        std::int64_t next = 0;
        bool right = true;
        for (int rank = 0; rank < tp_size; ++rank) {
          const HeadShard shard = head_shard(heads, kv_heads, rank, tp_size);
          right =
              right && shard.group == group && shard.query.begin == next && shard.query.size() > 0;
          next = shard.query.end;
          // Exactly the KV heads that are read: the first, the last, and all between.
          right = right && shard.kv.begin == shard.query.begin / group &&
                  shard.kv.end == (shard.query.end - 1) / group + 1;
          for (std::int64_t q = 0; q < shard.query.size(); ++q) {
            const std::int64_t local = shard.kv_local(q);
            right = right && local >= 0 && local < shard.kv.size() &&
                    shard.kv.begin + local == (shard.query.begin + q) / group;
          }
        }
        if (!right || next != heads)
          FAIL(heads << " heads, " << kv_heads << " KV heads, tp " << tp_size);
      }
    }
  }
}

TEST_CASE("an uneven split reads the KV heads of its query heads") {
  // 8 query heads on 2 KV heads and 3 ranks: rank 1 has the query heads 2, 3 and 4.
  const HeadShard shard = head_shard(8, 2, 1, 3);
  CHECK(shard.query == Range{2, 5});
  CHECK(shard.kv == Range{0, 2});
  CHECK(shard.kv_local(0) == 0);
  CHECK(shard.kv_local(1) == 0);
  CHECK(shard.kv_local(2) == 1);
}

TEST_CASE("KV heads are split and then replicated as ranks become more") {
  CHECK(kv_map(32, 4, 1) == "[0 1 2 3]");
  CHECK(kv_map(32, 4, 2) == "[0 1][2 3]");
  CHECK(kv_map(32, 4, 4) == "[0][1][2][3]");
  CHECK(kv_map(32, 4, 8) == "[0][0][1][1][2][2][3][3]");
  CHECK(kv_map(8, 2, 3) == "[0][0 1][1]");
}

TEST_CASE("the vocabulary is padded to equal shards") {
  for (int rank = 0; rank < 4; ++rank) {
    const VocabShard shard = vocab_shard(10, rank, 4);
    CHECK(shard.rows == Range{3 * rank, 3 * rank + 3});  // the last shard has two pads
    CHECK(shard.valid == 10);
  }
  CHECK(vocab_shard(12, 3, 4).rows == Range{9, 12});
  CHECK(vocab_shard(10, 0, 1).rows == Range{0, 10});
}

TEST_CASE("the imbalance is what the largest part has above the mean") {
  CHECK(imbalance_percent(80, 8) == 0);
  CHECK(std::abs(imbalance_percent(8, 3) - 12.5) < 1e-9);  // 3 instead of 8 / 3
  CHECK(std::abs(imbalance_percent(10, 4) - 20) < 1e-9);   // 3 instead of 2.5
  CHECK(shard_ranges(10, 4) == std::vector<Range>{{0, 2}, {2, 5}, {5, 7}, {7, 10}});
}

TEST_CASE("a size that KV heads forbid is refused by name with the sizes that work") {
  const ShardedSizes phi{40, 10, 17920};
  const std::string text = refusal(phi, 4);
  CHECK_THAT(text, ContainsSubstring("--tp 4"));
  CHECK_THAT(text, ContainsSubstring("num_key_value_heads=10"));
  CHECK_THAT(text, !ContainsSubstring("num_attention_heads"));
  CHECK_THAT(text, !ContainsSubstring("intermediate_size"));
  CHECK_THAT(text, ContainsSubstring("usable sizes: 1, 2, 5, 10, 20, 40"));
  CHECK_THAT(text, ContainsSubstring("--uneven"));
  CHECK(usable_tp_sizes(phi) == std::vector<int>{1, 2, 5, 10, 20, 40});
  for (const int usable : usable_tp_sizes(phi)) CHECK(refusal(phi, usable) == "");
}

TEST_CASE("usable sizes must divide everything") {
  const ShardedSizes qwen{28, 4, 18944};
  CHECK(usable_tp_sizes(qwen) == std::vector<int>{1, 2, 4});
  CHECK_THAT(refusal(qwen, 7), ContainsSubstring("num_key_value_heads=4"));
  CHECK(usable_tp_sizes({32, 4, 11008}) == std::vector<int>{1, 2, 4, 8, 16, 32});
}

TEST_CASE("all problems are named at once") {
  const ShardedSizes sizes{8, 2, 80};
  const std::string text = refusal(sizes, 3);
  CHECK_THAT(text, ContainsSubstring("num_attention_heads=8 is not a multiple of tp=3"));
  CHECK_THAT(text, ContainsSubstring("num_key_value_heads=2"));
  CHECK_THAT(text, ContainsSubstring("intermediate_size=80 is not a multiple of tp=3"));
  CHECK(tp_problems(sizes, 3, false).size() == 3);
}

TEST_CASE("uneven splits need a query head for every rank and nothing else") {
  const ShardedSizes sizes{8, 2, 80};
  for (int tp_size = 1; tp_size <= 8; ++tp_size) CHECK(refusal(sizes, tp_size, true) == "");
  for (const bool uneven : {false, true}) {
    const std::string text = refusal(sizes, 9, uneven);
    CHECK_THAT(text, ContainsSubstring("num_attention_heads=8"));
    CHECK_THAT(text, ContainsSubstring("9 ranks"));
    CHECK_THAT(text, !ContainsSubstring("--uneven"));  // it would not help
  }
}

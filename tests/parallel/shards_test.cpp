#include "common/parallel/shards.h"

#include <cmath>
#include <set>
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

// Calls check(heads, kv_heads, tp_size) for up to 32 query heads, all numbers of KV heads that
// divide them and all numbers of ranks; it says whether all is right.
template <class Check>
void for_each_small_split(const Check& check) {
  for (std::int64_t heads = 1; heads <= 32; ++heads)
    for (std::int64_t kv_heads = 1; kv_heads <= heads; ++kv_heads)
      for (int tp_size = 1; heads % kv_heads == 0 && tp_size <= heads; ++tp_size)
        if (!check(heads, kv_heads, tp_size))
          FAIL(heads << " heads, " << kv_heads << " KV heads, tp " << tp_size);
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
  for_each_small_split([](std::int64_t heads, std::int64_t kv_heads, int tp_size) {
    const std::int64_t group = heads / kv_heads;
    std::int64_t next = 0;
    bool right = true;
    for (int rank = 0; rank < tp_size; ++rank) {
      const HeadShard shard = head_shard(heads, kv_heads, rank, tp_size);
      right = right && shard.group == group && shard.query.begin == next && shard.query.size() > 0;
      next = shard.query.end;
      for (std::int64_t q = 0; q < shard.query.size(); ++q) {
        const std::int64_t local = shard.kv_local(q);
        right = right && local >= 0 && local < shard.kv.size() &&
                shard.kv.begin + local == (shard.query.begin + q) / group;
      }
    }
    return right && next == heads;
  });
}

TEST_CASE("a rank holds exactly the KV heads that its query heads read") {
  for_each_small_split([](std::int64_t heads, std::int64_t kv_heads, int tp_size) {
    // Query heads that read each KV head, written down instead of calculated.
    std::vector<std::int64_t> kv_of_query;
    for (std::int64_t kv = 0; kv < kv_heads; ++kv)
      kv_of_query.insert(kv_of_query.end(), static_cast<std::size_t>(heads / kv_heads), kv);
    bool right = true;
    Range before{0, 0};
    for (int rank = 0; rank < tp_size; ++rank) {
      const HeadShard shard = head_shard(heads, kv_heads, rank, tp_size);
      std::set<std::int64_t> read, held;
      for (std::int64_t q = shard.query.begin; q < shard.query.end; ++q)
        read.insert(kv_of_query[static_cast<std::size_t>(q)]);
      for (std::int64_t kv = shard.kv.begin; kv < shard.kv.end; ++kv) held.insert(kv);
      // In rank order, without a gap: a rank begins where the last one ended, or shares that head.
      const bool in_order =
          shard.kv.begin == before.end || (rank > 0 && shard.kv.begin == before.end - 1);
      right = right && read == held && in_order;
      before = shard.kv;
    }
    return right && before.end == kv_heads;
  });
}

TEST_CASE("an even split of heads is the division of the textbook") {
  int splits = 0, replicated = 0;
  for_each_small_split([&](std::int64_t heads, std::int64_t kv_heads, int tp_size) {
    const bool divides = kv_heads % tp_size == 0, replicates = tp_size % kv_heads == 0;
    if (heads % tp_size != 0 || (!divides && !replicates)) return true;
    ++splits;
    replicated += tp_size > kv_heads;
    bool right = true;
    for (std::int64_t rank = 0; rank < tp_size; ++rank) {
      const HeadShard shard = head_shard(heads, kv_heads, static_cast<int>(rank), tp_size);
      const std::int64_t local = heads / tp_size, kv_local = divides ? kv_heads / tp_size : 1;
      const std::int64_t first_kv = divides ? rank * kv_local : rank / (tp_size / kv_heads);
      right = right && shard.query == Range{rank * local, (rank + 1) * local} &&
              shard.kv == Range{first_kv, first_kv + kv_local};
    }
    return right;
  });
  CHECK(splits > 300);
  CHECK(replicated > 100);
}

TEST_CASE("replicas of KV heads and the sum of local KV heads") {
  for_each_small_split([](std::int64_t heads, std::int64_t kv_heads, int tp_size) {
    const std::int64_t group = heads / kv_heads;
    std::int64_t on_all_ranks = 0, ranks_of_all_kv_heads = 0;
    std::vector<std::int64_t> replicas(static_cast<std::size_t>(kv_heads));
    for (int rank = 0; rank < tp_size; ++rank) {
      const Range kv = head_shard(heads, kv_heads, rank, tp_size).kv;
      on_all_ranks += kv.size();
      for (std::int64_t h = kv.begin; h < kv.end; ++h) ++replicas[static_cast<std::size_t>(h)];
    }
    bool right = true;
    for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
      // The ranks of the group's query heads, counted once each.
      std::set<int> ranks;
      for (int rank = 0; rank < tp_size; ++rank)
        for (std::int64_t q = kv * group; q < (kv + 1) * group; ++q)
          if (shard_range(heads, rank, tp_size).contains(q)) ranks.insert(rank);
      right = right && replicas[static_cast<std::size_t>(kv)] == std::ssize(ranks);
      ranks_of_all_kv_heads += std::ssize(ranks);
    }
    // Nothing is copied as long as tp divides the KV heads; beyond them every rank has one.
    if (kv_heads % tp_size == 0) right = right && on_all_ranks == kv_heads;
    if (tp_size % kv_heads == 0 && heads % tp_size == 0) right = right && on_all_ranks == tp_size;
    // Each of the tp - 1 borders between ranks splits one group at most.
    return right && on_all_ranks == ranks_of_all_kv_heads && on_all_ranks < kv_heads + tp_size;
  });
}

TEST_CASE("KV heads that do not divide the query heads are refused by name") {
  for (std::int64_t heads = 1; heads <= 32; ++heads) {
    for (std::int64_t kv_heads = 0; kv_heads <= 33; ++kv_heads) {
      if (kv_heads > 0 && heads % kv_heads == 0) continue;
      const std::string wanted =
          "num_attention_heads=" + std::to_string(heads) +
          " is not a multiple of num_key_value_heads=" + std::to_string(kv_heads);
      std::string found;
      try {
        head_shard(heads, kv_heads, 0, 1);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::input) found = e.what();
      }
      const std::vector<std::string> reasons = tp_problems({heads, kv_heads, 7}, 2, true);
      if (found.find(wanted) == std::string::npos || reasons != std::vector<std::string>{wanted})
        FAIL(heads << " heads, " << kv_heads << " KV heads: " << found);
    }
  }
  for (const bool uneven : {false, true}) {
    const std::string text = refusal({40, 12, 80}, 4, uneven);
    CHECK_THAT(text, ContainsSubstring("num_attention_heads=40"));
    CHECK_THAT(text, ContainsSubstring("num_key_value_heads=12"));
    CHECK_THAT(text, !ContainsSubstring("--uneven"));  // it would not help
    CHECK_THAT(text, !ContainsSubstring("usable sizes"));
  }
  CHECK(usable_tp_sizes({40, 12}).empty());
  CHECK(heads_per_kv_head(40, 10) == 4);
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
  CHECK(kv_map(28, 4, 7) == "[0][0 1][1][1 2][2][2 3][3]");
  CHECK(kv_map(6, 1, 3) == "[0][0][0]");
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
  CHECK_THAT(refusal(qwen, 7), ContainsSubstring("intermediate_size=18944"));
  CHECK(tp_problems({96, 8}, 6, false).size() == 1);  // the KV heads; a vocabulary can be padded
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

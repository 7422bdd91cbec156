#include "common/plan/cards.h"

#include <set>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

TEST_CASE("a card is known by its name with memory and source") {
  CHECK(card_named("a100-80g").memory_bytes() == 85'899'345'920);
  CHECK(card_named("a100-40g").memory_gib == 40);
  CHECK(card_named("h100-80g").memory_gib == 80);
  CHECK(card_named("rtx-a6000").memory_gib == 48);
  CHECK(card_named("rtx-4090").memory_gib == 24);
  std::set<std::string_view> names;
  for (const Card& card : known_cards()) {
    CAPTURE(card.name);
    CHECK(card.memory_gib >= 16);
    CHECK_FALSE(card.source.empty());
    CHECK(names.insert(card.name).second);
  }
}

TEST_CASE("an unknown card is refused with those that are known") {
  try {
    card_named("rtx-9999");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK_THAT(e.what(), ContainsSubstring("--card rtx-9999") && ContainsSubstring("a100-80g") &&
                             ContainsSubstring("--card-memory-gib"));
  }
}

TEST_CASE("cards whose error correction takes memory are known") {
  std::set<std::string_view> names;
  for (const Card& card : known_cards())
    if (card.ecc_takes_memory) names.insert(card.name);
  CHECK(names ==
        std::set<std::string_view>{"a10-24g", "l4-24g", "l40s-48g", "rtx-a6000", "t4-16g"});
}

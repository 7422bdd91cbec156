#include "common/engine/block_manager.h"

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

TEST_CASE("a table has the blocks that its tokens need") {
  // Blocks at the prefill of P tokens, and when G tokens have been generated: P + G - 1 slots.
  struct Case {
    std::int64_t prompt, generated, at_prefill, at_end;
  };
  for (const Case& c : {Case{4, 1, 1, 1}, Case{4, 2, 1, 2}, Case{3, 2, 1, 1}, Case{5, 4, 2, 2},
                        Case{5, 5, 2, 3}, Case{8, 9, 2, 4}, Case{1, 1, 1, 1}, Case{4, 5, 1, 2}}) {
    INFO("P=" << c.prompt << ", G=" << c.generated);
    BlockManager blocks(8, 4);
    BlockTable table;
    REQUIRE(blocks.grow(table, c.prompt));
    CHECK(std::ssize(table) == c.at_prefill);
    for (std::int64_t tokens = c.prompt; tokens < c.prompt + c.generated; ++tokens)
      REQUIRE(blocks.grow(table, tokens));
    CHECK(std::ssize(table) == c.at_end);
    blocks.release(table);
    CHECK(blocks.free_blocks() == 8);
  }
}

TEST_CASE("blocks that were given back are handed out again in the same order") {
  BlockManager blocks(6, 4);
  BlockTable a, b, c;
  REQUIRE(blocks.grow(a, 9));
  REQUIRE(blocks.grow(b, 5));
  CHECK(a == BlockTable{0, 1, 2});
  CHECK(b == BlockTable{3, 4});
  blocks.release(a);
  CHECK(a.empty());
  REQUIRE(blocks.grow(c, 12));
  CHECK(c == BlockTable{0, 1, 2});
}

TEST_CASE("a table that cannot grow is left as it was") {
  BlockManager blocks(3, 4);
  BlockTable a, b;
  REQUIRE(blocks.grow(a, 8));
  CHECK_FALSE(blocks.grow(b, 5));
  CHECK(b.empty());
  CHECK(blocks.free_blocks() == 1);
  CHECK(blocks.grow(b, 4));
  CHECK_FALSE(blocks.grow(a, 9));
  CHECK(std::ssize(a) == 2);
  CHECK(blocks.peak_used_blocks() == 3);
}

TEST_CASE("a shared block is free when the last table has given it back") {
  BlockManager blocks(6, 4);
  BlockTable a;
  REQUIRE(blocks.grow(a, 10));  // two full blocks and a half one
  BlockTable b = blocks.share(a, 10);
  CHECK(b == BlockTable{0, 1});
  REQUIRE(blocks.grow(b, 10));
  CHECK(b == BlockTable{0, 1, 3});
  CHECK(blocks.references(0) == 2);
  CHECK(blocks.references(2) == 1);
  CHECK(blocks.used_blocks() == 4);
  blocks.release(a);
  CHECK(blocks.references(0) == 1);
  CHECK(blocks.references(2) == 0);
  CHECK(blocks.used_blocks() == 3);
  blocks.release(b);
  CHECK(blocks.free_blocks() == 6);
}

TEST_CASE("giving a block back twice is an error") {
  BlockManager blocks(4, 4);
  BlockTable a;
  REQUIRE(blocks.grow(a, 4));
  BlockTable copy = a;
  blocks.release(a);
  CHECK_THROWS_WITH(blocks.release(copy), ContainsSubstring("block 0 is given back"));
}

#include "common/topology/link.h"

#include "tests/catch.h"

using namespace tp;

TEST_CASE("links are ordered as their legend ranks them") {
  const char* const worst_first[] = {"SYS", "NODE", "PHB", "PXB",  "PIX", "NV1",
                                     "NV2", "NV4",  "NV6", "NV12", "NV18"};
  std::optional<Link> before;
  for (const char* word : worst_first) {
    INFO(word);
    const std::optional<Link> link = Link::parse(word);
    REQUIRE(link);
    CHECK(link->name() == word);
    CHECK(link->is_nvlink() == (word[1] == 'V'));
    if (before) CHECK(*before < *link);
    before = link;
  }
  CHECK(before->nvlinks() == 18);
  CHECK(Link::parse("SOC") == Link::sys());
}

TEST_CASE("other words are no links") {
  for (const char* word :
       {"", "X", "NV", "NV0", "NV-1", "NV100", "NV4x", "NV 4", "nv4", "SYSX", "OK", "N/A", "0"}) {
    INFO(word);
    CHECK_FALSE(Link::parse(word));
  }
}

TEST_CASE("every status word of P2P is known") {
  for (const char* word : {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"}) {
    const auto status = parse_p2p_status(word);
    REQUIRE(status);
    CHECK(describe(*status).starts_with(std::string(word) + " ("));
    CHECK((*status == P2pStatus::ok) == (std::string(word) == "OK"));
  }
  for (const char* word : {"", "X", "ok", "PIX", "UU"}) CHECK_FALSE(parse_p2p_status(word));
}

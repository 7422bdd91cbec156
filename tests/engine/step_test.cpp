#include "common/engine/step.h"

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

TEST_CASE("a step survives its encoding") {
  const Step step{41, 2, {7, 0, -1, 2147483647}};
  std::vector<std::byte> bytes;
  step.encode(bytes);
  CHECK(bytes.size() == 16 + 4 * 4);
  const Step back = Step::decode(bytes);
  CHECK(back.first_position == 41);
  CHECK(back.logit_rows == 2);
  CHECK(back.ids == step.ids);
  CHECK_FALSE(back.stop());
}

TEST_CASE("a step without tokens means stop") {
  std::vector<std::byte> bytes;
  Step().encode(bytes);
  CHECK(Step::decode(bytes).stop());
}

TEST_CASE("bytes that are no step are refused") {
  CHECK_THROWS_AS(Step::decode({}), Error);
  CHECK_THROWS_AS(Step::decode(std::vector<std::byte>(15)), Error);
  CHECK_THROWS_AS(Step::decode(std::vector<std::byte>(18)), Error);
}

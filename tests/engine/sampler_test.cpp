#include "common/engine/sampler.h"

#include <cmath>
#include <limits>

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;

namespace {

std::vector<Candidate> candidates_of(const std::vector<float>& logits,
                                     const SamplingParams& params) {
  return candidates(view_of(logits.data(), {1, static_cast<std::int64_t>(logits.size())}), params);
}

std::vector<std::int32_t> ids_of(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<std::int32_t> ids;
  for (const Candidate& c : candidates_of(logits, params)) ids.push_back(c.id);
  return ids;
}

// Logits whose softmax is the given probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

using Ids = std::vector<std::int32_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("greedy takes the lowest id among equals") {
  CHECK(ids_of({1, 5, 2, 5, 5, 0, 5, 5}, {}) == Ids{1});
  CHECK(ids_of({-3, -1, -2, -1}, {}) == Ids{1});
}

TEST_CASE("top-k keeps the lowest ids among equals and never more than k") {
  CHECK(ids_of({1, 5, 2, 5, 5, 0, 5, 5}, {.temperature = 1, .top_k = 2}) == Ids{1, 3});
  for (const std::int64_t off : {0, -1, 4, 100})
    CHECK(ids_of({1, 2, 3, 4}, {.temperature = 1, .top_k = off}).size() == 4);
}

TEST_CASE("top-p keeps the smallest set that reaches it and at least one") {
  const std::vector<float> logits{4, 3, 2, 2};  // with base 2: 0.5, 0.25, 0.125, 0.125
  const double base2 = 1 / std::log(2.0);       // temperature that makes exp a power of two
  const auto kept = [&](double top_p) {
    return ids_of(logits, {.temperature = base2, .top_p = top_p});
  };
  CHECK(kept(0.76) == Ids{0, 1, 2});
  CHECK(kept(0.4) == Ids{0});
  CHECK(kept(0) == Ids{0});
  CHECK(kept(1) == Ids{0, 1, 2, 3});
  CHECK(kept(0.6) == Ids{0, 1});
}

TEST_CASE("top-p comes after top-k and sees renormalised probabilities") {
  const auto list =
      candidates_of(logits_of({0.4, 0.3, 0.2, 0.1}), {.temperature = 1, .top_k = 2, .top_p = 0.5});
  CHECK(list.size() == 1);
  CHECK(list[0].id == 0);
}

TEST_CASE("temperature 0 never divides and 0_5 sharpens") {
  CHECK(ids_of({2.0f, 1.0f, 0.5f}, {.temperature = 0}) == Ids{0});
  CHECK(ids_of({2.0f, 1.0f, 0.5f}, {.temperature = 1e-45}) == Ids{0});
  const auto list = candidates_of({2.0f, 1.0f, 0.5f}, {.temperature = 0.5});
  CHECK(std::abs(list[0].probability - 0.843795) < 1e-6);
  CHECK(std::abs(list[1].probability - 0.114195) < 1e-6);
  CHECK(std::abs(list[2].probability - 0.042010) < 1e-6);
}

TEST_CASE("masked tokens are never chosen and non-finite logits are an error") {
  CHECK(ids_of({-kInf, 1, -kInf, 0}, {.temperature = 1}) == Ids{1, 3});
  CHECK(ids_of({-kInf, 1, -kInf, 0}, {}) == Ids{1});
  for (const double temperature : {0.0, 1.0}) {
    CHECK_THROWS_WITH(ids_of({1, kNaN, 0}, {.temperature = temperature}),
                      ContainsSubstring("non-finite logits"));
    CHECK_THROWS_WITH(ids_of({1, kInf, 0}, {.temperature = temperature}),
                      ContainsSubstring("non-finite logits"));
    CHECK_THROWS_WITH(ids_of({-kInf, -kInf}, {.temperature = temperature}),
                      ContainsSubstring("non-finite logits"));
  }
}

TEST_CASE("unmasked zero pads would win over negative logits") {
  std::vector<float> logits;
  for (int i = 1; i <= 10; ++i) logits.push_back(static_cast<float>(-i));
  CHECK(ids_of(logits, {}) == Ids{0});
  CHECK(std::abs(candidates_of(logits, {.temperature = 1})[0].probability - 0.632149) < 1e-6);
  logits.insert(logits.end(), {0, 0});
  CHECK(ids_of(logits, {}) == Ids{10});
  CHECK(std::abs(candidates_of(logits, {.temperature = 1})[0].probability - 0.142481) < 1e-6);
}

TEST_CASE("draws follow the probabilities and repeat with the seed") {
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.2});
  const ConstTensorView view = view_of(logits.data(), {1, 3});
  std::vector<int> counts(3);
  constexpr int kDraws = 20000;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw)
    ++counts[static_cast<std::size_t>(sample(view, {.temperature = 1, .seed = 3}, draw))];
  CHECK(std::abs(counts[0] - 0.5 * kDraws) < 400);
  CHECK(std::abs(counts[1] - 0.3 * kDraws) < 400);
  CHECK(std::abs(counts[2] - 0.2 * kDraws) < 400);
  CHECK(sample(view, {.temperature = 1, .seed = 3}, 7) ==
        sample(view, {.temperature = 1, .seed = 3}, 7));
}

TEST_CASE("parameters that make no sense are named") {
  CHECK(SamplingParams{}.problems().empty());
  CHECK(SamplingParams{.temperature = -1}.problems().size() == 1);
  CHECK(SamplingParams{.temperature = NAN, .top_k = -2, .top_p = 1.5}.problems().size() == 3);
  CHECK(SamplingParams{.temperature = INFINITY}.problems().size() == 1);
  CHECK(SamplingParams{.top_p = NAN}.problems().size() == 1);
}

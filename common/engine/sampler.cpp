#include "common/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/random.h"

namespace tp {

namespace {

void check_finite(const float* logits, std::int64_t count) {
  bool any = false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      throw Error(ErrorKind::rank, fmt::format("non-finite logits: token {} has {}", i, logits[i]));
    any = any || logits[i] != -INFINITY;
  }
  if (!any) throw Error(ErrorKind::rank, "non-finite logits: every token has -inf");
}

// The lowest id among the largest logits.
std::int32_t arg_max(const float* logits, std::int64_t count) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + count) - logits);
}

void renormalise(std::vector<Candidate>& list) {
  double sum = 0;
  for (const Candidate& c : list) sum += c.probability;
  for (Candidate& c : list) c.probability /= sum;
}

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// Large vocabularies are never sorted as a whole: few of the tokens are needed in order.
void keep_most_likely(std::vector<Candidate>& list, std::size_t count) {
  std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count), list.end(),
                    more_likely);
  list.resize(count);
}

// Keeps the most likely ones until their probabilities reach `top_p`, at least one.
void keep_until(std::vector<Candidate>& list, double top_p) {
  constexpr std::size_t kFirstSorted = 64;
  std::size_t kept = 0, sorted = 0;
  for (double sum = 0; kept < list.size() && (kept == 0 || sum < top_p); ++kept) {
    if (kept == sorted) {
      sorted = std::min(list.size(), std::max(kFirstSorted, 4 * sorted));
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(kept);
      std::partial_sort(begin, list.begin() + static_cast<std::ptrdiff_t>(sorted), list.end(),
                        more_likely);
    }
    sum += list[kept].probability;
  }
  list.resize(kept);
}

}  // namespace

std::vector<std::string> SamplingParams::problems() const {
  std::vector<std::string> list;
  if (!std::isfinite(temperature) || temperature < 0)
    list.push_back(fmt::format("temperature {}: must be a finite number, 0 or above", temperature));
  if (!(top_p >= 0 && top_p <= 1))
    list.push_back(fmt::format("top-p {}: must be between 0 and 1", top_p));
  if (top_k < -1)
    list.push_back(fmt::format("top-k {}: must be 1 or more, or 0 or -1 for off", top_k));
  return list;
}

std::vector<Candidate> candidates(ConstTensorView logits, const SamplingParams& params) {
  const float* row = logits.row<float>(0);
  const std::int64_t count = logits.row_elements();
  check_finite(row, count);
  const std::int32_t best = arg_max(row, count);
  if (params.greedy()) return {{best, 1.0}};

  std::vector<Candidate> list;
  list.reserve(static_cast<std::size_t>(count));
  for (std::int32_t id = 0; id < count; ++id)
    if (row[id] != -INFINITY) list.push_back({id, static_cast<double>(row[id])});
  if (params.top_k > 0 && params.top_k < std::ssize(list))
    keep_most_likely(list, static_cast<std::size_t>(params.top_k));  // by their logits
  for (Candidate& c : list)
    c.probability = std::exp((c.probability - row[best]) / params.temperature);
  renormalise(list);
  if (params.top_p < 1) {
    keep_until(list, params.top_p);
    renormalise(list);
  }
  return list;
}

std::int32_t sample(ConstTensorView logits, const SamplingParams& params, std::uint64_t draw) {
  const std::vector<Candidate> list = candidates(logits, params);
  double rest = static_cast<double>(uniform(params.seed, draw));
  for (const Candidate& c : list) {
    if (rest < c.probability) return c.id;
    rest -= c.probability;
  }
  return list.back().id;  // the sum of the probabilities was rounded below 1
}

}  // namespace tp

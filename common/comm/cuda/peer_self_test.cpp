#include "common/comm/cuda/peer_self_test.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp::cuda {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kElements = 4096;
constexpr std::int64_t kApart = 1'000'003;

struct TooLong {};

std::vector<float> numbers_of(std::int64_t rank) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < kElements; ++i)
    numbers.push_back(static_cast<float>(rank * kApart + i));
  return numbers;
}

// Where a number that arrived at element i comes from, if it is one of ours.
std::string origin_of(float value, std::size_t i, const std::vector<int>& gpus) {
  for (std::size_t r = 0; r < gpus.size(); ++r)
    if (value == numbers_of(static_cast<std::int64_t>(r))[i])
      return fmt::format(", which is the number of GPU {}", gpus[r]);
  return "";
}

// Empty if all is right. Compares bits: NaN is never right.
std::string difference(const std::vector<float>& got,
                       const std::vector<float>& right,
                       const std::vector<int>& gpus) {
  if (got.size() != right.size())
    return fmt::format("{} elements arrived of {}", got.size(), right.size());
  std::optional<std::size_t> first;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (std::memcmp(&got[i], &right[i], sizeof(float)) == 0) continue;
    ++wrong;
    if (!first) first = i;
  }
  if (!first) return "";
  return fmt::format("element {} is {:.9g}{}, but {:.9g} was sent ({} of {} are wrong)", *first,
                     got[*first], origin_of(got[*first], *first, gpus), right[*first], wrong,
                     right.size());
}

}  // namespace

std::vector<std::string> peer_self_test(const std::vector<int>& gpus,
                                        const std::vector<PeerTransfer>& transfers,
                                        std::chrono::milliseconds timeout) {
  const std::set<int> sorted(gpus.begin(), gpus.end());
  const std::vector<int> different(sorted.begin(), sorted.end());
  const auto numbers = [&](int gpu) {
    return numbers_of(std::find(different.begin(), different.end(), gpu) - different.begin());
  };
  std::vector<std::string> problems;
  for (const GpuPair pair : pairs_of(gpus))
    for (const PeerTransfer& transfer : transfers) {
      const std::string way =
          fmt::format("from GPU {} to GPU {} by {}", pair.from, pair.to, transfer.name);
      const Clock::time_point start = Clock::now();
      try {
        const std::vector<float> sent = numbers(pair.from);
        const std::vector<float> got = transfer.run(pair, sent, numbers(pair.to), [&] {
          if (Clock::now() - start > timeout) throw TooLong();
        });
        const std::string wrong = difference(got, sent, different);
        if (!wrong.empty()) problems.push_back(way + ": " + wrong);
      } catch (const TooLong&) {
        problems.push_back(fmt::format("{}: not there after {} s", way,
                                       static_cast<double>(timeout.count()) / 1000));
        return problems;
      }
    }
  return problems;
}

std::string peer_advice() {
  return "the GPUs get wrong data when they read each other's memory: look in the BIOS and the "
         "kernel's command line for IOMMU and ACS and switch them off, or do without such reads: "
         "--comm auto then copies through the host, and NCCL_P2P_DISABLE=1 lets NCCL do the same";
}

}  // namespace tp::cuda

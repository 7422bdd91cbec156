#include "common/engine/step.h"

#include <cstring>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

constexpr std::size_t kHeaderBytes = 2 * sizeof(std::int64_t);

}  // namespace

void Step::encode(std::vector<std::byte>& bytes) const {
  const std::int64_t header[2] = {first_position, logit_rows};
  bytes.resize(kHeaderBytes + ids.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), header, kHeaderBytes);
  if (!ids.empty())
    std::memcpy(bytes.data() + kHeaderBytes, ids.data(), ids.size() * sizeof(std::int32_t));
}

Step Step::decode(const std::vector<std::byte>& bytes) {
  if (bytes.size() < kHeaderBytes || (bytes.size() - kHeaderBytes) % sizeof(std::int32_t) != 0)
    throw Error(ErrorKind::rank, fmt::format("a step of {} bytes cannot be", bytes.size()));
  std::int64_t header[2];
  std::memcpy(header, bytes.data(), kHeaderBytes);
  Step step{header[0], header[1],
            std::vector<std::int32_t>((bytes.size() - kHeaderBytes) / sizeof(std::int32_t))};
  if (!step.ids.empty())
    std::memcpy(step.ids.data(), bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes);
  return step;
}

}  // namespace tp

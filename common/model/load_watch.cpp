#include "common/model/load_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

LoadProgress::LoadProgress(std::int64_t all_bytes, Write write, Clock::time_point start)
    : all_bytes_(std::max<std::int64_t>(all_bytes, 1)),
      write_(std::move(write)),
      next_(start + kPatience) {}

LoadProgress LoadProgress::on_terminal(std::int64_t all_bytes) {
  Write write;
  if (::isatty(STDERR_FILENO) != 0)
    write = [](const std::string& text) { std::fputs(text.c_str(), stderr); };
  return {all_bytes, std::move(write), Clock::now()};
}

void LoadProgress::add(std::int64_t bytes, Clock::time_point now) {
  bytes_ += bytes;
  if (!write_ || now < next_) return;
  next_ = now + kPause;
  shown_ = true;
  write_(fmt::format("\rloading weights: {:3d} % of rank 0's {:.0f} MB", bytes_ * 100 / all_bytes_,
                     static_cast<double>(all_bytes_) / 1e6));
}

void LoadProgress::finish() {
  if (std::exchange(shown_, false)) write_("\r\x1b[K");  // to the begin of the line; erase it
}

LoadWatch::LoadWatch(Device& device, const Weights& weights, LoadProgress* progress)
    : device_(device),
      weights_(weights),
      progress_(progress),
      not_finite_(weights.tensor_names().size(), 0) {
  device_.observe_uploads(
      [this](ConstTensorView host, const CopyFindings& findings) { uploaded(host, findings); });
}

void LoadWatch::uploaded(ConstTensorView host, const CopyFindings& findings) {
  if (progress_ != nullptr) progress_->add(host.bytes(), LoadProgress::Clock::now());
  if (findings.not_finite == 0 && findings.overflowed == 0) return;
  const std::string& name = weights_.name_of(host);
  if (findings.overflowed > 0)
    throw input_error(
        fmt::format("{}: {} of its values are too large for bf16, which ends at 3.39e38; leave "
                    "--dtype out, or use --dtype f32",
                    name, findings.overflowed));
  const auto& names = weights_.tensor_names();
  const auto index = std::find(names.begin(), names.end(), name) - names.begin();
  not_finite_[static_cast<std::size_t>(index)] += findings.not_finite;
}

std::vector<std::string> LoadWatch::notes(const RankContext& ctx) const {
  const std::span<const std::byte> of_all =
      ctx.group.exchange(std::as_bytes(std::span(not_finite_)));
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < not_finite_.size(); ++i) {
    std::vector<std::string> where;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ctx.tp_size); ++rank) {
      std::int64_t count = 0;
      std::memcpy(&count, of_all.data() + (rank * not_finite_.size() + i) * sizeof count,
                  sizeof count);
      if (count > 0) where.push_back(fmt::format("{} on rank {}", count, rank));
    }
    if (!where.empty())
      notes.push_back(fmt::format("{}: values that are NaN or infinite: {}",
                                  weights_.tensor_names()[i], fmt::join(where, ", ")));
  }
  return notes;
}

}  // namespace tp

// Counts the bytes that a device has allocated, by purpose. [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tp {

// For each tag ("weights", "kv", ...) the bytes in use and the most that ever were.
class MemoryCounter {
 public:
  struct Use {
    std::int64_t bytes = 0;
    std::int64_t peak_bytes = 0;
  };

  void allocated(const std::string& tag, std::int64_t bytes) {
    Use& use = uses_[tag];
    use.bytes += bytes;
    use.peak_bytes = use.bytes > use.peak_bytes ? use.bytes : use.peak_bytes;
  }
  void released(const std::string& tag, std::int64_t bytes) { uses_[tag].bytes -= bytes; }

  // Bytes that came from the host: weights, as they lie in their file.
  void uploaded(std::int64_t bytes) { uploaded_bytes_ += bytes; }
  std::int64_t uploaded_bytes() const { return uploaded_bytes_; }

  // Errors: none; an unknown tag has used nothing.
  Use use(const std::string& tag) const {
    const auto found = uses_.find(tag);
    return found == uses_.end() ? Use{} : found->second;
  }
  // In use now, for all purposes.
  std::int64_t total_bytes() const {
    std::int64_t total = 0;
    for (const auto& [tag, use] : uses_) total += use.bytes;
    return total;
  }
  const std::map<std::string, Use>& uses() const { return uses_; }

 private:
  std::map<std::string, Use> uses_;
  std::int64_t uploaded_bytes_ = 0;
};

}  // namespace tp

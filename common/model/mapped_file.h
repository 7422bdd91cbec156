// Files as memory: the operating system reads the pages that are used. [introduced in chapter 06]
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace tp {

// A file mapped read-only into memory. Move-only; the bytes stay where they are when it is moved.
// The size is that of the moment of opening: a file must not be shortened while it is mapped.
class MappedFile {
 public:
  // Errors: tp::Error (input) naming the path and the reason if the file is missing, not readable,
  //         no regular file, empty, or a Git LFS pointer that stands for the real file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace tp

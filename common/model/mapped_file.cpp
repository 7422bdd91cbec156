#include "common/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

Error refused(const std::filesystem::path& path, std::string_view reason) {
  return input_error(fmt::format("{}: {}", path.string(), reason));
}

std::string system_reason() {
  return fmt::format("cannot be read: {}", std::generic_category().message(errno));
}

// A file descriptor; the mapping outlives it.
struct Descriptor {
  explicit Descriptor(const std::filesystem::path& path)
      // Without O_NONBLOCK, opening a named pipe would wait for its writer.
      : value(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int value;
};

std::span<const std::byte> map_file(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status {};
  if (file.value < 0 || ::fstat(file.value, &status) != 0) throw refused(path, system_reason());
  if (S_ISDIR(status.st_mode)) throw refused(path, "is a folder, but a file is needed");
  if (!S_ISREG(status.st_mode)) throw refused(path, "is no regular file");
  if (status.st_size == 0) throw refused(path, "is empty");

  const auto size = static_cast<std::size_t>(status.st_size);
  const void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) throw refused(path, system_reason());
  return {static_cast<const std::byte*>(data), size};
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(path, map_file(path)) {
  if (text().starts_with("version https://git-lfs"))
    throw refused(path, "is a Git LFS pointer, not the file itself; fetch it with: git lfs pull");
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace tp

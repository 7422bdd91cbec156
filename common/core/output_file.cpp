#include "common/core/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

Error cannot_write(const std::string& path) {
  return input_error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

// An open file that is closed at the end of the scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

bool write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), written_path_(path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const bool special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  // A special file such as /dev/stdout is written in place: it must not be replaced.
  if (!special) written_path_ = fmt::format("{}.{}.part", path, ::getpid());
  const Descriptor probe{
      ::open(written_path_.c_str(), special ? O_WRONLY : O_WRONLY | O_CREAT, 0666)};
  if (probe.value < 0) throw cannot_write(path);
  if (!special) ::unlink(written_path_.c_str());
}

void OutputFile::commit(const std::string& text) const {
  const bool replaces = written_path_ != path_;
  const Descriptor file{::open(written_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666)};
  bool ok = file.value >= 0 && write_all(file.value, text);
  if (ok && replaces) ok = std::rename(written_path_.c_str(), path_.c_str()) == 0;
  if (ok) return;
  const Error error = cannot_write(path_);  // before unlink changes errno
  if (replaces) ::unlink(written_path_.c_str());
  throw error;
}

}  // namespace tp

// What the program prints during a test.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

// While it lives, standard output or standard error goes into a temporary file.
class CapturedOutput {
 public:
  explicit CapturedOutput(std::FILE* stream)
      : stream_(stream), file_(std::tmpfile()), original_(::dup(::fileno(stream))) {
    std::fflush(stream_);
    ::dup2(::fileno(file_), ::fileno(stream_));
  }
  ~CapturedOutput() {
    std::fflush(stream_);
    ::dup2(original_, ::fileno(stream_));
    ::close(original_);
    std::fclose(file_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // Everything that was printed so far.
  std::string text() const {
    std::fflush(stream_);
    std::string all;
    char part[4096];
    while (true) {
      const auto done = static_cast<off_t>(all.size());
      const ssize_t count = ::pread(::fileno(file_), part, sizeof part, done);
      if (count <= 0) return all;
      all.append(part, static_cast<std::size_t>(count));
    }
  }

 private:
  std::FILE* stream_;
  std::FILE* file_;
  int original_;
};

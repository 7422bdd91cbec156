// A terminal to print on, and the environment variables that programs on terminals look at.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

// While it lives, standard output goes to a terminal of its own. Takes a few lines only.
class Terminal {
 public:
  Terminal() : screen_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (screen_ < 0 || ::grantpt(screen_) != 0 || ::unlockpt(screen_) != 0)
      throw std::runtime_error("no pseudo terminal");
    const int program_side = ::open(::ptsname(screen_), O_RDWR | O_NOCTTY);
    if (program_side < 0) throw std::runtime_error("no pseudo terminal");
    std::fflush(stdout);
    original_ = ::dup(::fileno(stdout));
    ::dup2(program_side, ::fileno(stdout));
    ::close(program_side);
  }
  ~Terminal() {
    std::fflush(stdout);
    ::dup2(original_, ::fileno(stdout));
    ::close(original_);
    ::close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // What was printed so far, which must be something; a terminal's carriage returns are left out.
  std::string text() const {
    std::fflush(stdout);
    char part[4096];
    const ssize_t count = ::read(screen_, part, sizeof part);
    std::string all;
    for (ssize_t i = 0; i < count; ++i)
      if (part[i] != '\r') all += part[i];
    return all;
  }

 private:
  int screen_;
  int original_ = -1;
};

// Sets an environment variable, or takes it away, until the end of its life.
class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~SetVariable() { set(before_ ? before_->c_str() : nullptr); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr)
      ::setenv(name_, value, 1);
    else
      ::unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};
